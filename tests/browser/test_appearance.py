"""Every page as people see it: wide and narrow, by day and by night, and read aloud.

What was seen is kept under var/screenshots/, for whoever wants to look.
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

WIDTHS: Final = (1280, 380)
SCHEMES: Final = ("light", "dark")

PAGES: Final = {
    "overview": "/console",
    "overview-month": "/console?range=30d",
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
    "logs": "/console/logs",
    "logs-nothing": "/console/logs?text=nothing+has+this",
    "request": "/console/logs/{whole}",
    "request-rescued": "/console/logs/{rescued}",
    "request-refused": "/console/logs/{refused}",
    "connect": "/console/connect",
}
"""A name for the picture → the page."""

_AUDIT: Final = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" | ")}`)"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lived(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SeededGateway]:
    async with seeded_gateway(tmp_path_factory.mktemp("state"), days=3) as lived:
        yield lived


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def remembered(browser: Browser, lived: SeededGateway) -> StorageState:
    return await sign_in_once(browser, lived.gateway)


def path_of(page: str, lived: SeededGateway) -> str:
    return PAGES[page].format(
        token=lived.token.id, whole=lived.succeeded, rescued=lived.failed_over, refused=lived.failed
    )


async def faults(person: User) -> list[str]:
    """What of the page as it is shown now somebody could not use."""
    found: list[Any] = await person.page.evaluate(_AUDIT)
    if pixels := max(0, await person.overflow()):
        found.append(f"{pixels} pixels wider than the window")
    return found + await person.violations()


async def look(person: User, name: str) -> dict[str, list[str]]:
    """The faults of the page in every width and scheme; pictures of them are kept."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    found = {}
    for width in WIDTHS:
        await person.page.set_viewport_size({"width": width, "height": 800})
        for scheme in SCHEMES:
            await person.page.emulate_media(color_scheme=scheme)
            seen = f"{name}-{width}-{scheme}"
            found[seen] = await faults(person)
            await person.page.screenshot(path=SHOTS / f"{seen}.png", full_page=True)
    return found


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_is_usable(
    browser: Browser, lived: SeededGateway, remembered: StorageState, page: str
) -> None:
    async with signed_in(browser, lived.gateway, remembered) as person:
        await person.page.context.add_init_script(path=AXE_FILE_PATH)
        answer = await person.page.goto(path_of(page, lived), wait_until="networkidle")
        assert answer is not None and answer.status == 200
        assert {name: said for name, said in (await look(person, page)).items() if said} == {}


async def test_the_log_is_usable_while_it_is_followed(
    browser: Browser, lived: SeededGateway, remembered: StorageState
) -> None:
    async with signed_in(browser, lived.gateway, remembered) as person:
        await person.page.context.add_init_script(path=AXE_FILE_PATH)
        await person.page.goto("/console/logs")
        await person.page.get_by_role("button", name="Live").click()
        await person.page.get_by_role("status").get_by_text("Connected.").wait_for()
        seen = await look(person, "logs-live")
        assert {name: said for name, said in seen.items() if said} == {}


async def test_the_way_in_is_usable(
    browser: Browser, lived: SeededGateway, remembered: object
) -> None:
    async with open_user(browser, lived.gateway) as person:
        await person.page.context.add_init_script(path=AXE_FILE_PATH)
        await person.page.goto("/console/sign-in")
        assert {name: said for name, said in (await look(person, "sign-in")).items() if said} == {}
        assert person.complaints == []


async def test_the_audit_finds_what_is_wrong(
    browser: Browser, lived: SeededGateway, remembered: StorageState
) -> None:
    async with signed_in(browser, lived.gateway, remembered) as person:
        await person.page.context.add_init_script(path=AXE_FILE_PATH)
        await person.page.goto("/console/connect")
        await person.page.evaluate(
            "document.querySelector('main').innerHTML +="
            " '<input><p style=color:red>' + 'x'.repeat(9999)"
        )
        await person.page.wait_for_function("window.violations.length > 0")
        found = " ".join(await faults(person))
        assert "label:" in found
        assert "pixels wider" in found
        assert "style-src-attr inline" in found
        person.excuse("Content Security Policy")
