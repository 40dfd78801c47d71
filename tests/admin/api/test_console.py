"""The password and the sessions over the admin socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.admin.access.passwords import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from gateway.admin.api.console import open_admin_app
from gateway.admin.api.socket import serve_admin
from gateway.runtime import unix_microseconds
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from tests.admin.api_client import call, error_of
from tests.console.browser import PASSWORD, open_browser
from tests.support.databases import place_of
from tests.support.gateway import RunningGateway


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A command that stands in for the gateway."""
    state_dir = tmp_path / "state"
    with lock_state_dir(state_dir):
        async with (
            open_admin_app(place_of(state_dir / DATABASE_NAME), unix_microseconds) as admin,
            serve_admin(admin, state_dir) as path,
            aiohttp.ClientSession(
                "http://gateway/admin/api/", connector=aiohttp.UnixConnector(str(path))
            ) as session,
        ):
            yield session


async def test_a_password_can_be_set_before_the_first_start(client: aiohttp.ClientSession) -> None:
    assert await call(client, "GET", "sessions") == (200, {"password": False, "sessions": []})
    assert await call(client, "PUT", "password", {"password": PASSWORD}) == (200, {"ended": 0})
    assert await call(client, "GET", "sessions") == (200, {"password": True, "sessions": []})
    assert await call(client, "DELETE", "sessions") == (200, {"ended": 0})


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"password": None},
        {"password": "x" * (MIN_PASSWORD_LENGTH - 1)},
        {"password": "x" * (MAX_PASSWORD_LENGTH + 1)},
        {"password": PASSWORD, "more": 1},
    ],
)
async def test_invalid_passwords(client: aiohttp.ClientSession, body: object) -> None:
    status, code, message = error_of(await call(client, "PUT", "password", body))
    assert (status, code) == (400, "invalid_request")
    assert "xxx" not in message
    assert await call(client, "GET", "sessions") == (200, {"password": False, "sessions": []})


async def test_a_running_gateway_applies_it_immediately(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    connector = aiohttp.UnixConnector(str(tmp_path / "admin.sock"))
    async with (
        aiohttp.ClientSession("http://gateway/admin/api/", connector=connector) as client,
        open_browser(gateway, **{"user-agent": "a browser"}) as browser,
    ):
        await call(client, "PUT", "password", {"password": PASSWORD})
        assert (await browser.sign_in()).status == 303
        _, content = await call(client, "GET", "sessions")
        (session,) = content["sessions"]
        assert (session["address"], session["agent"]) == ("127.0.0.1", "a browser")
        assert set(session) == {"admin", "created_at", "seen_at", "address", "agent"}
        assert await call(client, "DELETE", "sessions") == (200, {"ended": 1})
        assert (await browser.get("/console/nowhere")).status == 303
        await browser.sign_in()
        answer = await call(client, "PUT", "password", {"password": "another password"})
        assert answer == (200, {"ended": 1})
        assert (await browser.get("/console/nowhere")).status == 303
