"""Every page wide and narrow, light and dark: accessible, without overflow, within its policy.

Pictures are saved in var/screenshots/.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, StorageState

from tests.browser.seeded_data import SeededGateway, seeded_gateway
from tests.browser.user import User, open_user, sign_in_once, signed_in

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SHOTS: Final = Path(__file__).resolve().parents[2] / "var" / "screenshots"

WIDTHS: Final = (1920, 1280, 768, 390)
RANGES: Final = ("24h", "7d", "30d")
SCHEMES: Final = ("light", "dark")

PAGES: Final = {
    "overview": "/console",
    "overview-month": "/console?since=30d",
    "keys": "/console/tokens?revoked=",
    "key": "/console/tokens/{token}",
    "key-new": "/console/tokens/new",
    "key-edit": "/console/tokens/{token}/edit",
    "key-rotate": "/console/tokens/{token}/rotate",
    "key-revoke": "/console/tokens/{token}/revoke",
    "groups": "/console/groups",
    "group": "/console/groups/engineering",
    "group-new": "/console/groups-new",
    "group-edit": "/console/groups/engineering/edit",
    "group-remove": "/console/groups/batch/remove",
    "channels": "/console/channels",
    "usage": "/console/usage?since=30d&by=model",
    "logs": "/console/logs",
    "logs-nothing": "/console/logs?text=nothing+has+this",
    "request": "/console/logs/{succeeded}",
    "request-failed-over": "/console/logs/{failed_over}",
    "request-failed": "/console/logs/{failed}",
    "connect": "/console/connect",
    "admins": "/console/admins",
    "admin": "/console/admins/admin",
    "admin-new": "/console/admins-new",
    "admin-token-new": "/console/admin-tokens/new",
    "audit": "/console/audit",
}
"""A name for the picture → the page."""

_AUDIT: Final = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" | ")}`)"""


_CLIPPED: Final = """() => {
  const canvas = document.createElement("canvas").getContext("2d");
  const width = (element, text) => {
    const style = getComputedStyle(element);
    canvas.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    return canvas.measureText(text).width;
  };
  const room = (element) => {
    const style = getComputedStyle(element);
    return element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  };
  const all = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.offsetParent);
  return [
    ...all("input[placeholder]").filter((e) => width(e, e.placeholder) > room(e))
      .map((e) => `clipped placeholder: ${e.placeholder}`),
    ...all("select").filter((e) => width(e, e.selectedOptions[0]?.text ?? "") > room(e))
      .map((e) => `clipped choice: ${e.selectedOptions[0].text}`),
    ...all("label, legend, button, .button, .state, .figure > *, h1, h2, h3")
      .filter((e) => !e.matches(".hidden") && e.clientWidth && e.scrollWidth > e.clientWidth + 1)
      .map((e) => `clipped text: ${e.textContent}`),
  ];
}"""
"""Texts that are wider than their place."""

_OUTSIDE: Final = """() => {
  const box = document.querySelector(".plot").viewBox.baseVal;
  return [...document.querySelectorAll(".plot text")].filter((text) => {
    const { x, y, width, height } = text.getBBox();
    return x < 0 || y < 0 || x + width > box.width || y + height > box.height;
  }).map((text) => text.textContent);
}"""
"""Texts of a chart that are not completely in it."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def seeded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SeededGateway]:
    async with seeded_gateway(tmp_path_factory.mktemp("state"), days=3) as seeded:
        yield seeded


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cookies(browser: Browser, seeded: SeededGateway) -> StorageState:
    return await sign_in_once(browser, seeded.gateway)


def path_of(page: str, seeded: SeededGateway) -> str:
    return PAGES[page].format(
        token=seeded.token.id,
        succeeded=seeded.succeeded,
        failed_over=seeded.failed_over,
        failed=seeded.failed,
    )


async def page_errors(user: User) -> list[str]:
    """Violations of accessibility and of the content security policy, and an overflow."""
    errors: list[Any] = await user.page.evaluate(_AUDIT)
    if pixels := max(0, await user.overflow()):
        errors.append(f"{pixels} pixels wider than the window")
    return errors + await user.page.evaluate(_CLIPPED) + await user.violations()


async def look(user: User, name: str) -> dict[str, list[str]]:
    """The errors of the page in every width and scheme; saves a picture of each."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    errors = {}
    for width in WIDTHS:
        await user.page.set_viewport_size({"width": width, "height": 800})
        for scheme in SCHEMES:
            await user.page.emulate_media(color_scheme=scheme)
            picture = f"{name}-{width}-{scheme}"
            if errors_of_page := await page_errors(user):
                errors[picture] = errors_of_page
            await user.page.screenshot(path=SHOTS / f"{picture}.png", full_page=True)
    return errors


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_is_usable(
    browser: Browser, seeded: SeededGateway, cookies: StorageState, page: str
) -> None:
    async with signed_in(browser, seeded.gateway, cookies) as user:
        await user.page.context.add_init_script(path=AXE_FILE_PATH)
        answer = await user.page.goto(path_of(page, seeded), wait_until="networkidle")
        assert answer is not None and answer.status == 200
        assert await look(user, page) == {}


async def test_no_text_of_a_chart_is_clipped(
    browser: Browser, seeded: SeededGateway, cookies: StorageState
) -> None:
    """And all texts have one size: every chart is as wide as the others, on every page."""
    key = f"/console/tokens/{seeded.token.id}"
    async with signed_in(browser, seeded.gateway, cookies) as user:
        for width in WIDTHS:
            await user.page.set_viewport_size({"width": width, "height": 800})
            seen = set()
            for path in (*(f"/console?since={span}" for span in RANGES), key):
                await user.page.goto(path)
                assert await user.page.locator(".plot text").count() > 4
                assert await user.page.evaluate(_OUTSIDE) == [], path
                widths = "plots => plots.map((plot) => Math.round(plot.clientWidth))"
                seen |= set(await user.page.locator(".plot").evaluate_all(widths))
            assert len(seen) == 1, width


async def test_an_invalid_file_is_announced_on_every_page(
    browser: Browser, seeded: SeededGateway, cookies: StorageState, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = seeded.gateway.daemon.runtime
    monkeypatch.setattr(runtime, "config_error", "channels.yaml:12: 3 errors, see the process log")
    async with signed_in(browser, seeded.gateway, cookies) as user:
        await user.page.context.add_init_script(path=AXE_FILE_PATH)
        for path in ("/console", "/console/logs", "/console/connect"):
            await user.page.goto(path)
            text = await user.page.get_by_role("alert").first.inner_text()
            assert "channels.yaml:12: 3 errors" in text
        assert await look(user, "invalid-file") == {}
        monkeypatch.undo()
        await user.page.goto("/console")
        assert await user.page.get_by_role("alert").count() == 0


async def test_the_log_is_usable_while_it_is_followed(
    browser: Browser, seeded: SeededGateway, cookies: StorageState
) -> None:
    async with signed_in(browser, seeded.gateway, cookies) as user:
        await user.page.context.add_init_script(path=AXE_FILE_PATH)
        await user.page.goto("/console/logs")
        await user.page.get_by_role("button", name="Live").click()
        await user.page.get_by_role("status").get_by_text("Connected.").wait_for()
        assert await look(user, "logs-live") == {}


async def test_the_sign_in_page_is_usable(
    browser: Browser, seeded: SeededGateway, cookies: object
) -> None:
    async with open_user(browser, seeded.gateway) as user:
        await user.page.context.add_init_script(path=AXE_FILE_PATH)
        await user.page.goto("/console/sign-in")
        assert await look(user, "sign-in") == {}
        assert user.complaints == []


async def test_the_audit_finds_errors(
    browser: Browser, seeded: SeededGateway, cookies: StorageState
) -> None:
    async with signed_in(browser, seeded.gateway, cookies) as user:
        await user.page.context.add_init_script(path=AXE_FILE_PATH)
        await user.page.goto("/console/connect")
        await user.page.evaluate(
            "document.querySelector('main').innerHTML +="
            " '<input><p style=color:red>' + 'x'.repeat(9999)"
        )
        await user.page.wait_for_function("window.violations.length > 0")
        errors = " ".join(await page_errors(user))
        assert "label:" in errors
        assert "pixels wider" in errors
        assert "style-src-attr inline" in errors
        user.excuse("Content Security Policy")
