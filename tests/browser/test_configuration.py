"""The configuration file in a browser: edited, restored, no secret on a page; routing and the
playground beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, StorageState

from gateway.core.formats import Format
from tests.admin.config_follower import ConfigFollower, follow_config, write
from tests.browser.test_appearance import look
from tests.browser.user import User, sign_in_once, signed_in
from tests.support.gateway import BETA, channel
from tests.support.upstream import ScriptedUpstream, fixture_stream

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PATH = "/console/configuration"
KEY = "inline-secret-1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def it(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ConfigFollower]:
    folder = tmp_path_factory.mktemp("file")
    only = channel(Format.CHAT, upstream.address)
    async with follow_config(folder, only) as it:
        write(
            it.file,
            f"# by hand\nstate_dir: {folder / 'state'}\nserver: {{port: 0, drain_timeout: 1}}\n"
            f"channels:\n  - name: main   # first\n    format: chat\n"
            f"    base_url: {only['base_url']}\n    models: [{BETA}]\n"
            f"    accounts: [{{name: one, key: {KEY}}}]\n",
        )
        await it.reloader.reload()
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cookies(browser: Browser, it: ConfigFollower) -> StorageState:
    return await sign_in_once(browser, it.gateway)


@pytest_asyncio.fixture(params=[True, False], ids=["scripts", "no-scripts"], loop_scope="session")
async def user(
    request: pytest.FixtureRequest, browser: Browser, it: ConfigFollower, cookies: StorageState
) -> AsyncIterator[User]:
    async with signed_in(browser, it.gateway, cookies, java_script_enabled=request.param) as user:
        yield user


async def change(user: User, old: str, new: str) -> None:
    """Edits the text as a person does, and reads what would change."""
    field = user.page.locator("#text")
    await field.fill((await field.input_value()).replace(old, new))
    await user.page.get_by_role("button", name="Show changes").press("Enter")


async def test_a_channel_is_edited_and_restored(user: User, it: ConfigFollower) -> None:
    before, page = it.file.read_text(), user.page
    await page.goto("/console/channels")
    await page.get_by_role("link", name="Edit main").click()
    assert (await page.input_value("#text")).startswith("  - name: main   # first\n")
    await change(user, "# first", "# second")
    assert "# second" in await page.locator("ins").inner_text()
    assert KEY not in await page.content()
    await page.get_by_role("button", name="Write and reload").click()
    await page.get_by_text("is active:").wait_for()
    assert it.file.read_text() == before.replace("# first", "# second")

    await page.get_by_role("link", name="History").click()
    await page.locator("tbody tr").nth(1).get_by_role("link").click()
    await page.get_by_role("button", name="Restore and reload").click()
    await page.get_by_text("is restored.").wait_for()
    assert it.file.read_text() == before


async def test_an_error_keeps_the_text(user: User, it: ConfigFollower) -> None:
    before = it.file.read_text()
    await user.page.goto(PATH)
    await change(user, "format: chat", "formt: chat")
    alert = user.page.get_by_role("alert")
    assert "unknown key; did you mean format?" in await alert.inner_text()
    assert "formt: chat" in await user.page.input_value("#text")
    assert it.file.read_text() == before
    user.complaints.clear()  # the status 422


async def test_a_prompt_is_sent_and_its_route_shown(
    user: User, it: ConfigFollower, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_stream(Format.CHAT))
    page = user.page
    await page.goto("/console/playground")
    await page.get_by_label("Key (id or name)").fill(it.gateway.token.id)
    await page.get_by_label("Model").fill(BETA)
    await page.get_by_label("Prompt").fill("Hello")
    await page.get_by_role("button", name="Send").click()
    assert "Hello, world!" in await page.get_by_label("Text of the reply").inner_text()
    assert "data: {" in await page.get_by_label("Raw events").inner_text()
    await page.get_by_role("link", name="Its route").click()
    assert "main/one would be used" in await page.get_by_role("status").inner_text()


@pytest.mark.parametrize(
    "path",
    [
        *(PATH, f"{PATH}?section=channels/main", f"{PATH}/history", f"{PATH}/history/1"),
        *(f"/console/routing?model={BETA}&format=messages", "/console/playground"),
    ],
)
async def test_every_page_is_accessible_and_within_its_policy(
    browser: Browser, it: ConfigFollower, cookies: StorageState, path: str
) -> None:
    async with signed_in(browser, it.gateway, cookies) as user:
        await user.page.context.add_init_script(path=AXE_FILE_PATH)
        await user.page.goto(path)
        name = path.removeprefix("/console/").partition("?")[0].replace("/", "-")
        assert await look(user, name) == {}
