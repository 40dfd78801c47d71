"""What an upstream really said is on the pages of logs, as text and nothing else; rows arrive."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.browser.person import Person
from tests.console.hostile import HOSTILE, SHOWN
from tests.house import House
from tests.scripted import ScriptedUpstream, reply, whole

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

NEWEST = "#rows tr:first-child"

MEGABYTE = b"<script>alert(3)</script>" + b"A" * 1024 * 1024


async def fail(house: House, upstream: ScriptedUpstream, said: bytes) -> str:
    """Has the upstream say that with a 500; the request's id."""
    before = len(await house.rows(0))
    upstream.play(whole(said, 500))
    answer = await house.ask(Format.CHAT)
    assert answer.status >= 500
    assert said[:20] not in await answer.read()
    return (await house.rows(before + 1))[-1].id


async def test_the_real_upstream_error_is_read(
    house: House, upstream: ScriptedUpstream, person: Person
) -> None:
    page = person.page
    said = b'{"error": {"message": "the reactor is too hot", "code": "E4711"}}'
    id_ = await fail(house, upstream, said)
    await page.goto("/console/logs")
    assert "the reactor is too hot" in await page.inner_text(f'tr[data-id="{id_}"]')
    await page.get_by_label("Text").fill("E4711")
    await page.get_by_role("button", name="Search").click()
    assert await page.locator("#rows tr").count() == 1
    await page.locator("#rows a").click()
    await page.wait_for_url(f"**/console/logs/{id_}")
    assert said.decode() in await page.inner_text("pre")


async def test_the_log_is_followed_live(
    house: House, upstream: ScriptedUpstream, person: Person
) -> None:
    page = person.page
    upstream.play(reply(Format.CHAT))
    await page.goto("/console/logs")
    await page.evaluate("window.loadedOnce = true")
    before = await page.locator("#rows tr").count()
    await page.get_by_role("button", name="Follow live").click()
    await page.get_by_role("button", name="Stop following").wait_for()
    assert (await house.ask(Format.CHAT)).status == 200
    await page.wait_for_selector(f"#rows tr:nth-child({before + 1})")
    assert "200" in await page.inner_text(NEWEST)
    assert "fresh" in (await page.get_attribute(NEWEST, "class") or "")
    await fail(house, upstream, HOSTILE.encode())
    await page.wait_for_selector(f"#rows tr:nth-child({before + 2})")
    assert "<script>" in await page.inner_text(NEWEST)
    assert await page.evaluate("window.loadedOnce")
    await page.get_by_role("button", name="Stop following").click()
    await harmless(person)


async def test_who_is_signed_out_is_told_so(person: Person) -> None:
    page = person.page
    await page.goto("/console/logs")
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Follow live").click()
    await page.get_by_text("Signed out: reload the page.").wait_for()
    person.excuse("status of 401")


@pytest.mark.parametrize("said", [HOSTILE.encode(), MEGABYTE], ids=["hostile", "a megabyte"])
async def test_whatever_an_upstream_says_is_text(
    house: House, upstream: ScriptedUpstream, person: Person, said: bytes
) -> None:
    page = person.page
    id_ = await fail(house, upstream, said)
    await page.goto("/console/logs")
    assert "alert(" in await page.inner_text(f'tr[data-id="{id_}"]')
    await harmless(person)
    await page.goto(f"/console/logs/{id_}")
    shown = await page.inner_text("pre")
    await harmless(person)
    assert len(shown) < 10_000
    assert SHOWN in shown if said == HOSTILE.encode() else shown.startswith("<script>alert(3)")


async def harmless(person: Person) -> None:
    """Nothing of what was said has become an element, an effect or a widening of the page."""
    page = person.page
    assert await page.locator("main script, main img, body > script").count() == 0
    assert await page.locator("script").count() == 1
    text = await page.inner_text("main")
    assert not {"\x1b", "\u202e"} & set(text)
    assert await person.violations() == []
    assert person.complaints == []
    assert await person.overflow() <= 0
