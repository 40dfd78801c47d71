"""Who has a key signs in with it by keyboard, without JavaScript, and replaces it."""

from __future__ import annotations

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser

from gateway.config.schema import Console
from gateway.core.formats import Format
from tests.browser.test_appearance import page_errors
from tests.browser.test_sign_in import tab_to
from tests.browser.user import open_user
from tests.support.gateway import RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_a_holder_by_keyboard(
    browser: Browser, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    runtime = gateway.daemon.runtime
    console = Console(key_holders="rotate")
    runtime.replace_config(runtime.config.model_copy(update={"console": console}))
    upstream.respond_with(fixture_reply(Format.CHAT))
    assert (await gateway.post(Format.CHAT)).status == 200
    async with open_user(browser, gateway, java_script_enabled=False) as user:
        page, keyboard = user.page, user.page.keyboard
        await page.goto("/console/sign-in/key")
        await page.focus("#key")
        await keyboard.type(gateway.key)
        await keyboard.press("Enter")
        await page.wait_for_url("**/console/my")
        await page.get_by_role("link", name="Replace this key").focus()
        await keyboard.press("Enter")
        await page.wait_for_url("**/console/my/rotate")
        await page.get_by_role("button", name="Replace this key").focus()
        await keyboard.press("Enter")
        await page.wait_for_url("**/console/my")
        key = await page.inner_text("#key")
        assert key.startswith("sk-")
        assert user.complaints == []
    async with open_user(browser, gateway) as user:
        page = user.page
        await page.add_init_script(path=AXE_FILE_PATH)
        await page.goto("/console/sign-in/key")
        assert await page_errors(user) == []
        await tab_to(user, "key")
        await page.keyboard.type(key)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/my")
        for path in ("/console/my", "/console/my/connect", "/console/my/rotate"):
            await page.goto(path)
            assert await page_errors(user) == []
        assert user.complaints == []
