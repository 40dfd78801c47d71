"""Charts under a pointer: what it finds, one cursor for all, and where a click leads."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, StorageState

from gateway.core.formats import Format
from tests.browser.user import User, signed_in
from tests.support.gateway import BETA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_the_pointer_finds_values_and_a_click_their_requests(
    gateway: RunningGateway, upstream: ScriptedUpstream, user: User
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    assert (await gateway.post(Format.CHAT)).status == 200
    id_ = (await gateway.row()).id
    page = user.page
    columns = page.locator(".chart", has_text="without success").locator("rect.column")
    async with asyncio.timeout(10):
        await page.goto("/console")
        while not await columns.count():  # the sums may be a second old: of before the request
            await asyncio.sleep(0.2)
            await page.goto("/console")
    tooltip = page.locator(".tooltip")
    assert not await tooltip.is_visible()
    last = columns.last
    await last.hover()
    assert "success: 1" in await tooltip.inner_text()
    assert await page.locator("rect.column.pointed").count() > 1  # in all charts
    assert await page.locator(".plot title").count() == 0
    await page.get_by_role("heading", name="Overview").hover()
    assert not await tooltip.is_visible()
    await last.click()
    await page.wait_for_url("**/console/logs?since=*")
    assert await page.locator(f'tr[data-id="{id_}"]').count() == 1
    assert await user.violations() == []


async def test_without_a_script_the_same_is_reached_by_links(
    browser: Browser, gateway: RunningGateway, upstream: ScriptedUpstream, cookies: StorageState
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    assert (await gateway.post(Format.CHAT)).status == 200
    async with signed_in(browser, gateway, cookies, java_script_enabled=False) as user:
        page = user.page
        await page.goto("/console")
        await page.get_by_role("link", name="7 d", exact=True).click()
        await page.wait_for_url("**/console?since=7d")
        await page.locator(".legend").get_by_role("link", name=BETA).click()
        await page.wait_for_url(f"**/console/logs?*model={BETA}")
        await page.get_by_role("link", name="Overview").click()
        await page.wait_for_url("**/console?since=*")
