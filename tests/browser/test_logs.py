"""The pages of logs in a browser: upstream errors are harmless text, and new rows arrive."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, StorageState

from gateway.core.formats import Format
from gateway.runtime import new_request_id
from tests.browser.user import User, open_user, sign_in_once, signed_in
from tests.console.hostile_text import DISPLAYED_TEXT, HOSTILE_TEXT
from tests.store.sample_rows import settlement
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.upstream import (
    Ending,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

NEWEST = "#rows tr:first-child"

MEGABYTE = b"<script>alert(3)</script>" + b"A" * 1024 * 1024


async def fail(gateway: RunningGateway, upstream: ScriptedUpstream, body: bytes) -> str:
    """Makes the upstream respond with the body and status 500; returns the id of the request."""
    before = len(await gateway.rows(0))
    upstream.respond_with(json_response(body, 500))
    answer = await gateway.post(Format.CHAT)
    assert answer.status >= 500
    assert body[:20] not in await answer.read()
    return (await gateway.rows(before + 1))[-1].id


async def test_find_an_upstream_error(
    gateway: RunningGateway, upstream: ScriptedUpstream, user: User
) -> None:
    page = user.page
    body = b'{"error": {"message": "the reactor is too hot", "code": "E4711"}}'
    id_ = await fail(gateway, upstream, body)
    await page.goto("/console/logs")
    assert "the reactor is too hot" in await page.inner_text(f'tr[data-id="{id_}"]')
    await page.get_by_text("Filter", exact=True).click()
    await page.get_by_label("Text").fill("E4711")
    await page.get_by_role("button", name="Search").click()
    assert await page.locator("#rows tr").count() == 1
    await page.locator("#rows th a").click()
    await page.wait_for_url(f"**/console/logs/{id_}")
    assert body.decode() in await page.inner_text("pre")


async def test_a_request_is_one_line_of_36_pixels(
    gateway: RunningGateway, upstream: ScriptedUpstream, user: User
) -> None:
    """However long its reason is, which is not lost: the title has it."""
    page, reason = user.page, "no slot is free " * 40
    id_ = await fail(gateway, upstream, reason.encode())
    row = page.locator(f'tr[data-id="{id_}"]')
    for width in (1280, 1920):
        await page.set_viewport_size({"width": width, "height": 800})
        await page.goto("/console/logs")
        box = await row.bounding_box()
        assert box is not None and box["height"] == 36
        assert reason.strip() in (await row.locator(".reason").get_attribute("title") or "")
    for width in (390, 768, 1280, 1920):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await user.overflow() <= 0


async def test_ages_grow(gateway: RunningGateway, user: User) -> None:
    """By the clock of the gateway: that of the browser may be wrong."""
    page = user.page
    row = settlement(0, gateway.token.id, id=new_request_id(gateway.daemon.runtime.now()))
    gateway.daemon.runtime.recorder.record_settlement(
        row._replace(started_at=gateway.daemon.runtime.now() - 30_000_000)
    )
    await gateway.rows(1)
    await page.clock.install(time=2_000_000_000)
    await page.goto("/console/logs")
    age = page.locator(f'tr[data-id="{row.id}"] time')
    assert (await age.inner_text()).endswith(" s")
    await page.clock.run_for(60_000)
    assert await age.inner_text() == "1 min"
    await page.clock.run_for(7_200_000)
    assert await age.inner_text() == "2 h"


async def test_a_cell_filters_without_a_script(
    browser: Browser, gateway: RunningGateway, upstream: ScriptedUpstream, cookies: StorageState
) -> None:
    id_ = await fail(gateway, upstream, b"it is broken")
    async with signed_in(browser, gateway, cookies, java_script_enabled=False) as user:
        page = user.page
        await page.goto("/console/logs")
        await page.locator(f'tr[data-id="{id_}"] .outcome a').click()
        await page.wait_for_url("**?outcome=upstream_error")
        await page.get_by_role("link", name="Remove the filter Outcome").click()
        await page.wait_for_url("**/console/logs?")
        await page.get_by_role("link", name="Errors").click()
        assert await page.locator(f'tr[data-id="{id_}"]').count() == 1


async def follow(page: Page) -> None:
    await page.get_by_role("button", name="Live").click()
    await page.get_by_role("status").get_by_text("Connected.").wait_for()
    assert await page.get_by_role("button", name="Live", pressed=True).count() == 1


async def test_the_log_is_followed_live(
    gateway: RunningGateway, upstream: ScriptedUpstream, user: User
) -> None:
    page = user.page
    upstream.respond_with(fixture_reply(Format.CHAT))
    await page.goto("/console/logs")
    assert await page.get_by_role("button", name="Live", pressed=False).count() == 1
    await page.evaluate("window.loadedOnce = true")
    before = await page.locator("#rows tr").count()
    await follow(page)
    assert (await gateway.post(Format.CHAT)).status == 200
    await page.wait_for_selector(f"#rows tr:nth-child({before + 1})")
    await page.wait_for_selector(f"{NEWEST}:has-text('success')")  # at first it may be running
    assert "fresh" in (await page.get_attribute(NEWEST, "class") or "")
    await fail(gateway, upstream, HOSTILE_TEXT.encode())
    await page.wait_for_selector(f"#rows tr:nth-child({before + 2})")
    assert "<script>" in await page.inner_text(NEWEST)
    assert await page.evaluate("window.loadedOnce")
    await assert_harmless(user)
    await page.get_by_role("button", name="Live").click()
    await page.get_by_role("button", name="Live", pressed=False).wait_for()
    async with asyncio.timeout(5):
        while gateway.daemon.console.feed.subscribers:
            await asyncio.sleep(0.02)


async def test_a_running_request_is_updated_when_it_ends(
    gateway: RunningGateway, upstream: ScriptedUpstream, user: User
) -> None:
    """Also with a filter for running requests."""
    page = user.page
    frames = by_frame(fixture_stream(Format.CHAT))
    upstream.respond_with(frames.with_changes(chunks=frames.chunks[:2], ending=Ending.STALLED))
    await page.goto("/console/logs?state=running")
    await follow(page)
    running = asyncio.ensure_future(gateway.post(Format.CHAT, stream=True))
    await page.wait_for_selector("#rows tr[data-running]")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await page.wait_for_selector("#rows tr:not([data-running]) .outcome-client_left")
    assert await page.locator("#rows tr").count() == 1


async def test_the_page_keeps_200_rows(
    browser: Browser, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        only = [channel(Format.CHAT, upstream.address)]
        gateway = await stack.enter_async_context(run_gateway(tmp_path, only))
        cookies = await sign_in_once(browser, gateway)
        user = await stack.enter_async_context(signed_in(browser, gateway, cookies))
        await user.page.goto("/console/logs")
        await user.page.get_by_text("There are no requests yet.").wait_for()
        await follow(user.page)
        now = gateway.daemon.runtime.now()
        ids = [new_request_id(now + number) for number in range(230)]
        for id_ in ids:
            row = settlement(0, gateway.token.id, id=id_)
            gateway.daemon.runtime.recorder.record_settlement(row)
        await user.page.wait_for_selector(f'tr[data-id="{ids[-1]}"]')
        assert await user.page.locator("#rows tr").count() == 200
        assert not await user.page.get_by_text("There are no requests yet.").count()


async def test_it_reconnects_after_a_restart(
    browser: Browser, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    only = [channel(Format.CHAT, upstream.address)]
    upstream.respond_with(fixture_reply(Format.CHAT))
    async with AsyncExitStack() as stack:
        async with run_gateway(tmp_path, only) as gateway:
            cookies = await sign_in_once(browser, gateway)
            user = await stack.enter_async_context(open_user(browser, gateway, cookies))
            await user.page.goto("/console/logs")
            await follow(user.page)
            port = int(gateway.address.rpartition(":")[2])
        await user.page.get_by_role("status").get_by_text("Reconnecting").wait_for()
        async with run_gateway(tmp_path, only, server={"port": port}) as gateway:
            await user.page.get_by_role("status").get_by_text("Connected.").wait_for()
            assert (await gateway.post(Format.CHAT)).status == 200
            id_ = (await gateway.row()).id
            await user.page.wait_for_selector(f'tr[data-id="{id_}"]')
        assert await user.violations() == []


async def test_following_reports_a_sign_out(user: User) -> None:
    page = user.page
    await page.goto("/console/logs")
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Live").click()
    await page.get_by_text("Signed out: reload the page.").wait_for()
    await page.get_by_role("button", name="Live", pressed=False).wait_for()
    for _ in ("the feed", "its rows"):
        user.excuse("status of 401")


@pytest.mark.parametrize("body", [HOSTILE_TEXT.encode(), MEGABYTE], ids=["hostile", "a megabyte"])
async def test_upstream_errors_are_escaped(
    gateway: RunningGateway, upstream: ScriptedUpstream, user: User, body: bytes
) -> None:
    page = user.page
    id_ = await fail(gateway, upstream, body)
    await page.goto("/console/logs")
    assert "alert(" in await page.inner_text(f'tr[data-id="{id_}"]')
    await assert_harmless(user)
    await page.goto(f"/console/logs/{id_}")
    text = await page.inner_text("pre")
    await assert_harmless(user)
    assert len(text) < 10_000
    assert (
        DISPLAYED_TEXT in text
        if body == HOSTILE_TEXT.encode()
        else text.startswith("<script>alert(3)")
    )


async def assert_harmless(user: User) -> None:
    """Nothing of the error has become an element, an effect or an overflow."""
    page = user.page
    assert await page.locator("main script, main img, body > script").count() == 0
    assert await page.locator('script:not([src^="/console/static/"])').count() == 0
    text = await page.inner_text("main")
    assert not {"\x1b", "\u202e"} & set(text)
    assert await user.violations() == []
    assert user.complaints == []
    assert await user.overflow() <= 0
