"""The life of a key in a browser: created, used by a client library, revoked, rejected."""

from __future__ import annotations

import openai
import pytest
from playwright.async_api import Browser, StorageState

from gateway.core.formats import Format
from tests.browser.user import User, signed_in
from tests.support.gateway import BETA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def ask(gateway: RunningGateway, key: str) -> str | None:
    """The reply that the OpenAI SDK gets."""
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.address}/v1", api_key=key, max_retries=0, timeout=20
    ) as client:
        completion = await client.chat.completions.create(
            model=BETA, messages=[{"role": "user", "content": "Hello"}]
        )
        return completion.choices[0].message.content


async def create_key(user: User, name: str) -> str:
    """Creates a key on the page and returns it."""
    page = user.page
    await page.goto("/console/tokens")
    await page.get_by_role("link", name="New key").click()
    await page.get_by_label("Name").fill(name)
    await page.get_by_role("button", name="Create key").click()
    return await page.inner_text("#key")


async def revoke(user: User) -> None:
    """The key of the current page."""
    await user.page.get_by_role("link", name="Revoke").click()
    await user.page.get_by_role("button", name="Revoke permanently").click()
    await user.page.wait_for_selector("h1 .state-revoked")


async def test_a_key_is_created_used_and_revoked(
    gateway: RunningGateway, upstream: ScriptedUpstream, user: User
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    key = await create_key(user, "laptop of alice")
    assert await ask(gateway, key) == "Hello, world!"
    await user.page.reload()
    assert key not in await user.page.content()
    await revoke(user)
    with pytest.raises(openai.AuthenticationError) as refused:
        await ask(gateway, key)
    assert refused.value.status_code == 401
    assert await user.violations() == []


async def test_a_new_key_is_copied(user: User) -> None:
    await user.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    key = await create_key(user, "copied")
    await user.page.get_by_role("button", name="Copy").click()
    await user.page.get_by_role("button", name="Copied").wait_for()
    assert await user.page.evaluate("navigator.clipboard.readText()") == key


async def test_errors_are_next_to_their_inputs(user: User) -> None:
    page = user.page
    await page.goto("/console/tokens/new")
    await page.get_by_label("Name").fill("wrong")
    await page.get_by_label("Total budget", exact=True).fill("lots")
    await page.get_by_role("button", name="Create key").click()
    field = page.get_by_label("Total budget", exact=True)
    assert await field.get_attribute("aria-invalid") == "true"
    assert await field.input_value() == "lots"
    assert await page.get_by_label("Name").input_value() == "wrong"
    assert await field.evaluate("field => field === document.activeElement")
    user.excuse("status of 422")


async def test_without_javascript(
    browser: Browser,
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    cookies: StorageState,
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    async with signed_in(browser, gateway, cookies, java_script_enabled=False) as user:
        key = await create_key(user, "no scripts")
        assert not await user.page.get_by_role("button", name="Copy").is_visible()
        assert await ask(gateway, key) == "Hello, world!"
        await user.page.get_by_role("button", name="Disable").click()
        await user.page.wait_for_selector("h1 .state-disabled")
        await user.page.get_by_role("button", name="Enable").click()
        await user.page.wait_for_selector("h1 .state-active")
        await user.page.goto("/console/logs")
        await user.page.get_by_text("Filter", exact=True).click()
        await user.page.get_by_label("Key").fill("no scripts")
        await user.page.get_by_role("button", name="Search").click()
        assert await user.page.locator("#rows tr").count() == 1
        assert not await user.page.get_by_role("button", name="Live").count()
        await user.page.locator("#rows .age a").click()
        assert "Response to the client: 200" in await user.page.inner_text("main")
        await user.page.go_back()
        await user.page.goto("/console/tokens")
        await user.page.get_by_role("link", name="no scripts").click()
        await revoke(user)
        with pytest.raises(openai.AuthenticationError):
            await ask(gateway, key)
