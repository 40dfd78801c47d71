"""Signing in with the keyboard, with wrong passwords, and signing out."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from gateway.store.records import Role
from tests.browser.user import PASSWORD, User, open_user
from tests.support.gateway import RunningGateway, run_gateway

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

TABS = 60
"""More than a page has focusable elements."""


async def focused(user: User) -> str:
    """The name or text of the focused element."""
    return str(
        await user.page.evaluate(
            "document.activeElement.name || document.activeElement.innerText.trim()"
        )
    )


async def tab_to(user: User, target: str) -> None:
    for _ in range(TABS):
        if await focused(user) == target:
            return
        await user.page.keyboard.press("Tab")
        assert await visible_focus(user), f"the focus on {await focused(user)!r} is invisible"
    raise AssertionError(f"{target!r} is not reachable by keyboard")


async def visible_focus(user: User) -> bool:
    """Whether the focused element is marked and within the window."""
    return bool(
        await user.page.evaluate(
            """() => {
              const element = document.activeElement;
              if (element === document.body) return true;
              const style = getComputedStyle(element);
              const box = element.getBoundingClientRect();
              const marked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
              return marked && box.width > 1 && box.bottom > 0 && box.top < innerHeight;
            }"""
        )
    )


@pytest.mark.usefixtures("cookies")
async def test_create_a_key_by_keyboard(browser: Browser, gateway: RunningGateway) -> None:
    async with open_user(browser, gateway) as user:
        page, keyboard = user.page, user.page.keyboard
        await page.goto("/console/tokens")
        await page.wait_for_url("**/console/sign-in**")
        assert await focused(user) == "password"
        await keyboard.type(PASSWORD)
        await keyboard.press("Enter")
        await page.wait_for_url("**/console/tokens")
        await keyboard.press("Tab")
        assert await focused(user) == "Skip to content"
        assert await visible_focus(user)
        await keyboard.press("Enter")
        await tab_to(user, "New key")
        await keyboard.press("Enter")
        await page.wait_for_url("**/console/tokens/new")
        await tab_to(user, "name")
        await keyboard.type("by keyboard")
        await tab_to(user, "Create key")
        await keyboard.press("Enter")
        assert (await page.inner_text("#key")).startswith("sk-")
        assert user.complaints == []


@pytest.mark.usefixtures("cookies")
async def test_sign_out(browser: Browser, gateway: RunningGateway) -> None:
    async with open_user(browser, gateway) as user:
        await user.sign_in()
        await user.page.wait_for_url("**/console")
        await user.page.get_by_role("button", name="Sign out").click()
        await user.page.wait_for_url("**/console/sign-in")
        await user.page.goto("/console/logs")
        assert "/console/sign-in" in user.page.url


async def test_wrong_passwords_only_delay(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.login_throttle.DELAYS", (0.0, 0.0, 0.1))
    async with run_gateway(tmp_path, []) as gateway, open_user(browser, gateway) as user:
        await gateway.daemon.console.access.admins.set_password(PASSWORD)
        for _ in range(5):
            await user.sign_in("a wrong password")
            await user.page.get_by_text("Wrong name or password.").wait_for()
        await user.sign_in(PASSWORD)
        await user.page.wait_for_url("**/console")


@pytest.mark.usefixtures("cookies")
async def test_a_viewer_is_offered_nothing_to_change(
    browser: Browser, gateway: RunningGateway
) -> None:
    """And is told so by the server, whatever the page offers."""
    access = gateway.daemon.console.access
    await access.admins.add("vera", Role.VIEWER, "the password of vera")
    async with open_user(browser, gateway) as user:
        page = user.page
        await user.sign_in("the password of vera", "Vera")
        await page.wait_for_url("**/console")
        assert await page.get_by_text("vera (viewer)").is_visible()
        await (
            page.get_by_role("navigation", name="Console")
            .get_by_role("link", name="Keys", exact=True)
            .click()
        )
        await page.wait_for_url("**/console/tokens")
        assert await page.get_by_text("New key").count() == 0
        assert await page.get_by_role("link", name="Audit").count() == 0
        await page.goto("/console/tokens/new")
        assert await page.get_by_text("which admin: vera does not have").is_visible()
        user.excuse("403")
        await access.admins.remove("vera")
        await page.goto("/console/tokens")
        await page.wait_for_url("**/console/sign-in**")
        assert user.complaints == []
