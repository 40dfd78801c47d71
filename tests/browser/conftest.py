"""One browser for all tests of this folder, and a gateway with a password for each module.

They share the event loop of the browser's connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, StorageState

from gateway.core.formats import Format
from tests.browser import chromium
from tests.browser.user import User, sign_in_once, signed_in
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.upstream import ScriptedUpstream, scripted_upstream


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Skips without Chromium, unless the run requires it."""
    program = chromium.find_chromium()
    if program is None and chromium.is_required():
        pytest.fail(
            f"{chromium.REQUIRE_VARIABLE}=1, but there is no chromium (Debian: apt-get install it)"
        )
    if program is None:
        pytest.skip("there is no chromium (Debian: apt-get install chromium)")
    async with chromium.launch(program) as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as upstream:
        yield upstream


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gateway(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningGateway]:
    """One channel, so that every failure is one attempt."""
    only = [channel(Format.CHAT, upstream.address)]
    async with run_gateway(tmp_path_factory.mktemp("state"), only) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cookies(browser: Browser, gateway: RunningGateway) -> StorageState:
    """The cookies of a session."""
    return await sign_in_once(browser, gateway)


@pytest_asyncio.fixture(loop_scope="session")
async def user(
    browser: Browser, gateway: RunningGateway, cookies: StorageState
) -> AsyncIterator[User]:
    """Signed in."""
    async with signed_in(browser, gateway, cookies) as user:
        yield user
