"""The way in: by keyboard alone, with the wrong password, and what a stranger is left with."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.user import PASSWORD, User, open_user
from tests.support.gateway import RunningGateway, run_gateway

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

TABS = 60
"""More than a page has of anything."""


async def focused(person: User) -> str:
    """What has the keyboard: its text or name."""
    return str(
        await person.page.evaluate(
            "document.activeElement.name || document.activeElement.innerText.trim()"
        )
    )


async def tab_to(person: User, wanted: str) -> None:
    for _ in range(TABS):
        if await focused(person) == wanted:
            return
        await person.page.keyboard.press("Tab")
        assert await visible_focus(person), f"nobody sees that {await focused(person)!r} has it"
    raise AssertionError(f"no way to {wanted!r} by keyboard")


async def visible_focus(person: User) -> bool:
    """Whether what has the keyboard is marked and within the window."""
    return bool(
        await person.page.evaluate(
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


@pytest.mark.usefixtures("remembered")
async def test_in_and_to_a_key_by_keyboard_alone(browser: Browser, gateway: RunningGateway) -> None:
    async with open_user(browser, gateway) as person:
        page, keyboard = person.page, person.page.keyboard
        await page.goto("/console/tokens")
        await page.wait_for_url("**/console/sign-in**")
        assert await focused(person) == "password"
        await keyboard.type(PASSWORD)
        await keyboard.press("Enter")
        await page.wait_for_url("**/console/tokens")
        await keyboard.press("Tab")
        assert await focused(person) == "Skip to content"
        assert await visible_focus(person)
        await keyboard.press("Enter")
        await tab_to(person, "New key")
        await keyboard.press("Enter")
        await page.wait_for_url("**/console/tokens/new")
        await tab_to(person, "name")
        await keyboard.type("by keyboard")
        await tab_to(person, "Create key")
        await keyboard.press("Enter")
        assert (await page.inner_text("#key")).startswith("sk-")
        assert person.complaints == []


@pytest.mark.usefixtures("remembered")
async def test_out_again(browser: Browser, gateway: RunningGateway) -> None:
    async with open_user(browser, gateway) as person:
        await person.sign_in()
        await person.page.wait_for_url("**/console")
        await person.page.get_by_role("button", name="Sign out").click()
        await person.page.wait_for_url("**/console/sign-in")
        await person.page.goto("/console/logs")
        assert "/console/sign-in" in person.page.url


async def test_the_sixth_guess_is_not_looked_at(browser: Browser, tmp_path: Path) -> None:
    async with run_gateway(tmp_path, []) as gateway, open_user(browser, gateway) as person:
        await gateway.daemon.console.sessions.set_password(PASSWORD)
        for _ in range(5):
            await person.sign_in("a wrong password")
            await person.page.get_by_text("Wrong password.").wait_for()
        await person.sign_in(PASSWORD)
        await person.page.get_by_text("Too many attempts. Try again in").wait_for()
        await person.page.goto("/console")
        assert "/console/sign-in" in person.page.url
