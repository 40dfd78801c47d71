"""A key's whole life on the page: made, used by a stock library, revoked, refused."""

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
    """What the stock library of chat-completions gets."""
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.address}/v1", api_key=key, max_retries=0, timeout=20
    ) as client:
        completion = await client.chat.completions.create(
            model=BETA, messages=[{"role": "user", "content": "Hello"}]
        )
        return completion.choices[0].message.content


async def mint(person: User, name: str) -> str:
    """Makes a key on the page; the key, as it is shown this once."""
    page = person.page
    await page.goto("/console/tokens")
    await page.get_by_role("link", name="New key").click()
    await page.get_by_label("Name").fill(name)
    await page.get_by_role("button", name="Create key").click()
    return await page.inner_text("#key")


async def revoke(person: User) -> None:
    """The key whose page is open."""
    await person.page.get_by_role("link", name="Revoke").click()
    await person.page.get_by_role("button", name="Revoke permanently").click()
    await person.page.wait_for_selector("h1 .state-revoked")


async def test_a_key_is_made_used_and_revoked(
    gateway: RunningGateway, upstream: ScriptedUpstream, person: User
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    key = await mint(person, "laptop of alice")
    assert await ask(gateway, key) == "Hello, world!"
    await person.page.reload()
    assert key not in await person.page.content()
    await revoke(person)
    with pytest.raises(openai.AuthenticationError) as refused:
        await ask(gateway, key)
    assert refused.value.status_code == 401
    assert await person.violations() == []


async def test_a_new_key_is_copied(person: User) -> None:
    await person.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    key = await mint(person, "copied")
    await person.page.get_by_role("button", name="Copy").click()
    await person.page.get_by_role("button", name="Copied").wait_for()
    assert await person.page.evaluate("navigator.clipboard.readText()") == key


async def test_what_was_typed_wrong_stands_beside_its_field(person: User) -> None:
    page = person.page
    await page.goto("/console/tokens/new")
    await page.get_by_label("Name").fill("wrong")
    await page.get_by_label("Total budget").fill("lots")
    await page.get_by_role("button", name="Create key").click()
    field = page.get_by_label("Total budget")
    assert await field.get_attribute("aria-invalid") == "true"
    assert await field.input_value() == "lots"
    assert await page.get_by_label("Name").input_value() == "wrong"
    person.excuse("status of 422")


async def test_without_scripts_all_of_it_works(
    browser: Browser,
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    remembered: StorageState,
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    async with signed_in(browser, gateway, remembered, java_script_enabled=False) as person:
        key = await mint(person, "no scripts")
        assert not await person.page.get_by_role("button", name="Copy").is_visible()
        assert await ask(gateway, key) == "Hello, world!"
        await person.page.get_by_role("button", name="Disable").click()
        await person.page.wait_for_selector("h1 .state-disabled")
        await person.page.get_by_role("button", name="Enable").click()
        await person.page.wait_for_selector("h1 .state-active")
        await person.page.goto("/console/logs")
        await person.page.get_by_label("Key").fill("no scripts")
        await person.page.get_by_role("button", name="Search").click()
        assert await person.page.locator("#rows tr").count() == 1
        assert not await person.page.get_by_role("button", name="Live").count()
        await person.page.locator("#rows a").click()
        assert "Response to the client: 200" in await person.page.inner_text("main")
        await person.page.go_back()
        await person.page.goto("/console/tokens")
        await person.page.get_by_role("link", name="no scripts").click()
        await revoke(person)
        with pytest.raises(openai.AuthenticationError):
            await ask(gateway, key)
