"""Tokens of the admin API: instead of the cookie, without TLS nowhere but here, slow to guess."""

from __future__ import annotations

import asyncio
import logging
from itertools import product
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession

from gateway.config.schema import Server
from gateway.store import access as store
from gateway.store.database import Writer
from gateway.store.keys import ADMIN_PREFIX, PREFIX, generate_key, well_formed
from gateway.store.records import AdminToken, Role, Scope
from tests.admin.feed_client import follow_feed
from tests.console.access_api import (
    API,
    access_of,
    ask,
    audited,
    code_of,
    create_token,
    session_of,
)
from tests.console.browser import FORM_HEADERS, open_browser
from tests.console.test_guard import ELSEWHERE, METHODS, ORIGINS, SITES, assert_protected
from tests.support.gateway import RunningGateway, channels, run_gateway

pytestmark = pytest.mark.timeout(60)

KEYS = f"{API}/keys"
DELAYS = "gateway.console.login_throttle.DELAYS"


@pytest.fixture
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DELAYS, (0.0,))


async def test_a_token_of_our_shape_is_shown_once_and_stored_as_a_digest(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    secret = await create_token(gateway, Scope.ALL)
    assert secret.startswith(ADMIN_PREFIX)
    key = PREFIX + secret.removeprefix(ADMIN_PREFIX)
    assert well_formed(key)
    assert not well_formed(f"{key[:-1]}{'a' if key[-1] != 'a' else 'b'}")
    assert (await ask(gateway, "GET", KEYS, secret)).status == 200
    for path in (f"{API}/tokens", f"{API}/audit"):
        text = await (await ask(gateway, "GET", path, secret)).text()
        assert secret not in text
        assert secret[:8] in text
    files = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert all(secret.encode() not in content for content in files)


async def test_a_revoked_and_an_expired_token_end_immediately(gateway: RunningGateway) -> None:
    tokens = access_of(gateway).tokens
    secret = await create_token(gateway, Scope.READ, "to revoke")
    now = gateway.daemon.runtime.now()
    _, short = await tokens.create("short", Scope.READ, now + 300_000)
    for each in (secret, short):
        assert (await ask(gateway, "GET", KEYS, each)).status == 200
    await tokens.revoke("to revoke")
    await asyncio.sleep(0.35)
    for each in (secret, short):
        answer = await ask(gateway, "GET", KEYS, each)
        assert (answer.status, await code_of(answer)) == (401, "invalid_token")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert_protected(answer.headers, KEYS)


@pytest.mark.usefixtures("no_delays")
async def test_invalid_tokens_all_get_the_same_answer(gateway: RunningGateway) -> None:
    valid = await create_token(gateway, Scope.ALL)
    answers = set()
    for wrong in (
        *("", "x", generate_key(ADMIN_PREFIX), gateway.key, valid[:-1], valid.lower()),
        *(f"{valid} {valid}", "\xff" * 40, "gwa_" + "a" * 5000),
    ):
        answer = await ask(gateway, "GET", KEYS, wrong)
        answers.add((answer.status, await answer.text()))
    assert len(answers) == 1
    ((status, text),) = answers
    assert status == 401
    assert "unknown, expired or revoked" in text


@pytest.mark.usefixtures("no_delays")
async def test_with_a_token_no_cookie_is_considered(gateway: RunningGateway) -> None:
    """Neither to allow more, nor instead of an invalid one."""
    admin = {"cookie": await session_of(gateway, Role.ADMIN)} | FORM_HEADERS
    reading = await create_token(gateway, Scope.READ)
    body = {"name": "stolen", "group": "default"}
    assert (await ask(gateway, "POST", KEYS, headers=admin, json=body)).status == 201
    assert (await ask(gateway, "POST", KEYS, reading, headers=admin, json=body)).status == 403
    for wrong in ("", "x", generate_key(ADMIN_PREFIX)):
        assert (await ask(gateway, "GET", KEYS, wrong, headers=admin)).status == 401
    # Another scheme is that of a proxy.
    basic = admin | {"authorization": "Basic eDp5"}
    assert (await ask(gateway, "GET", KEYS, headers=basic)).status == 200


@pytest.mark.usefixtures("no_delays")
async def test_two_credentials_are_rejected(gateway: RunningGateway) -> None:
    secret = await create_token(gateway, Scope.ALL)
    port = int(gateway.address.rpartition(":")[2])
    for first, second in product((secret, "x"), (secret, "x")):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET {KEYS} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
            f"authorization: Bearer {first}\r\nauthorization: Bearer {second}\r\n\r\n".encode()
        )
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert answer.split(b" ", 2)[1] in (b"400", b"401")


async def test_the_rules_against_other_sites_do_not_apply(gateway: RunningGateway) -> None:
    """A browser sends no token by itself. The path does not exist: 404 means accepted."""
    secret = await create_token(gateway, Scope.ALL)
    for site, origin, method in product(SITES, ORIGINS, METHODS):
        sent = {"Sec-Fetch-Site": site, "Origin": origin}
        headers = {name: each for name, each in sent.items() if each is not None}
        answer = await ask(gateway, method, f"{API}/nowhere", secret, headers=headers)
        assert answer.status == 404, (site, origin, method)
        assert "access-control-allow-origin" not in answer.headers
    created = await ask(
        gateway,
        "POST",
        KEYS,
        secret,
        data=b'{"name": "by curl", "group": "default"}',
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert created.status == 201


async def test_other_sites_cannot_use_the_cookie_with_a_header_in_the_way(
    gateway: RunningGateway,
) -> None:
    """A credential that is no bearer token leaves the rules in force."""
    cookie = await session_of(gateway, Role.ADMIN)
    for scheme in ("Bearer", "bearer x", "Basic eDp5", "Token x", "Bearerx", ""):
        headers = {"cookie": cookie, "Origin": ELSEWHERE, "authorization": scheme}
        answer = await ask(gateway, "POST", KEYS, headers=headers, json={"name": "x"})
        expected = "invalid_token" if scheme in ("Bearer", "bearer x") else "cross_site"
        assert await code_of(answer) == expected, scheme


async def test_a_token_in_the_query_is_refused(gateway: RunningGateway) -> None:
    secret = await create_token(gateway, Scope.ALL)
    cookie = {"cookie": await session_of(gateway, Role.ADMIN)} | FORM_HEADERS
    for name in ("token", "access_token", "api_key", "x"):
        for more in ({}, {"headers": cookie}, {"secret": secret}):
            answer = await ask(gateway, "GET", f"{API}/groups?{name}={secret}", **more)
            assert (answer.status, await code_of(answer)) == (400, "token_in_query")


async def test_without_tls_only_from_the_gateways_machine(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    secret = await create_token(gateway, Scope.ALL)
    for host in ("gateway.example", "192.0.2.1:8080", "localhost.evil.example"):
        for each in (secret, generate_key(ADMIN_PREFIX)):
            answer = await ask(gateway, "GET", KEYS, each, headers={"host": host})
            assert (answer.status, await code_of(answer)) == (403, "insecure_transport")
    behind = {"trusted_proxies": ["127.0.0.1/32"]}
    async with run_gateway(tmp_path / "b", channels("http://127.0.0.1:9"), server=behind) as other:
        secret = await create_token(other, Scope.ALL)
        forwarded = {"x-forwarded-for": "203.0.113.7"}
        assert (await ask(other, "GET", KEYS, secret)).status == 200
        assert (await ask(other, "GET", KEYS, secret, headers=forwarded)).status == 403
    tls = behind | {"public_url": "https://gateway.example"}
    async with run_gateway(tmp_path / "c", channels("http://127.0.0.1:9"), server=tls) as other:
        secret = await create_token(other, Scope.ALL)
        headers = forwarded | {"host": "gateway.example"}
        assert (await ask(other, "GET", KEYS, secret, headers=headers)).status == 200
        (token,) = access_of(other).tokens.all()
        assert token.last_address == "203.0.113.7"


async def test_tokens_do_not_sign_in_to_endpoints_and_pages(gateway: RunningGateway) -> None:
    secret = await create_token(gateway, Scope.ALL)
    assert (await gateway.get("/v1/models", key=secret)).status == 401
    answer = await ask(gateway, "GET", "/console/tokens", secret)
    assert answer.headers["location"].startswith("/console/sign-in")


async def test_the_last_use_is_noted_and_saved_at_most_once_a_minute(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = store.touch_token

    async def note(database: Writer, used: AdminToken) -> None:
        saved.append(used)
        await save(database, used)

    secret = await create_token(gateway, Scope.READ)
    monkeypatch.setattr(store, "touch_token", note)
    before = gateway.daemon.runtime.now()
    config = gateway.daemon.runtime.config
    behind = {"public_url": "https://gateway.example", "trusted_proxies": ["127.0.0.1/32"]}
    server = Server.model_validate_json(orjson.dumps(behind))
    gateway.daemon.runtime.replace_config(config.model_copy(update={"server": server}))
    for number in range(20):  # from two addresses in turn
        forwarded = {"x-forwarded-for": f"203.0.113.{number % 2}"}
        await ask(gateway, "GET", f"{API}/groups", secret, headers=forwarded)
    (token,) = access_of(gateway).tokens.all()
    assert token.last_used_at is not None
    assert token.last_used_at >= before
    assert token.last_address == "203.0.113.1"
    assert [used.last_address for used in saved] == ["203.0.113.0"]


async def test_invalid_tokens_are_slowed_down_and_valid_ones_are_not(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DELAYS, (0.0, 30.0))
    secret = await create_token(gateway, Scope.READ)
    assert (await ask(gateway, "GET", KEYS, "x")).status == 401
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ask(gateway, "GET", KEYS, "x")
    async with asyncio.timeout(5):
        assert (await ask(gateway, "GET", KEYS, secret)).status == 200
        async with open_browser(gateway) as browser:  # nor those who sign in
            await access_of(gateway).admins.set_password("correct horse battery")
            assert (await browser.sign_in()).status == 303


@pytest.mark.usefixtures("no_delays")
async def test_a_flood_of_invalid_tokens(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows of the audit log, which count all of them, and nothing in the process log."""
    monkeypatch.setattr("gateway.console.login_throttle.MAX_WAITING", 10)
    secret = await create_token(gateway, Scope.READ)
    async with ClientSession(gateway.address) as http:

        async def guess(number: int) -> int:
            headers = {"authorization": f"Bearer gwa_{number}"}
            async with http.get(KEYS, headers=headers) as answer:
                return answer.status

        statuses = [
            status
            for start in range(0, 1000, 50)
            for status in await asyncio.gather(*map(guess, range(start, start + 50)))
        ]
        async with http.get(KEYS, headers={"authorization": f"Bearer {secret}"}) as answer:
            assert answer.status == 200
    assert set(statuses) <= {401, 429}
    await access_of(gateway).audit.close()
    rows = [
        *await audited(gateway, action="token.rejected"),
        *await audited(gateway, action="token.throttled"),
    ]
    assert sum(row.times for row in rows) == 1000
    assert len(rows) <= 22
    assert {row.actor for row in rows} == {"unknown"}


async def test_a_feed_ends_with_its_token(gateway: RunningGateway) -> None:
    secret = await create_token(gateway, Scope.READ)
    headers = {"authorization": f"Bearer {secret}"}
    async with (
        ClientSession(gateway.address, headers=headers) as http,
        follow_feed(http, f"{API}/requests/events") as follower,
    ):
        await access_of(gateway).tokens.revoke(Scope.READ)
        async with asyncio.timeout(30):
            assert await follower.next() is None


async def test_nothing_of_a_token_is_logged(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = await create_token(gateway, Scope.ALL)
    await ask(gateway, "GET", KEYS, secret)
    await ask(gateway, "GET", f"{API}/nowhere?x={secret}", secret)
    assert secret not in caplog.text


async def test_access_that_ends_while_the_body_is_sent_changes_nothing(
    gateway: RunningGateway,
) -> None:
    """For a session and a token alike."""
    access = access_of(gateway)
    secret, cookie = await create_token(gateway, Scope.ALL), await session_of(gateway, Role.ADMIN)
    await access.admins.add("other", Role.ADMIN, "correct horse battery")
    ends = {
        f"authorization: Bearer {secret}": lambda: access.tokens.revoke(Scope.ALL),
        f"cookie: {cookie}": lambda: access.admins.remove(Role.ADMIN),
    }
    port = int(gateway.address.rpartition(":")[2])
    keys = await gateway.operations.list_keys()
    for header, end in ends.items():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"name": "late", "group": "default"}'
        head = (
            f"POST {KEYS} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{header}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body[:10])
        await writer.drain()
        await asyncio.sleep(0.1)
        await end()
        writer.write(body[10:])
        async with asyncio.timeout(10):
            assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()
        await writer.wait_closed()
    assert await gateway.operations.list_keys() == keys


async def test_through_a_proxy_without_tls_on_this_machine(gateway: RunningGateway) -> None:
    """Its clients may be anywhere, as with metrics."""
    proxied = {"x-forwarded-for": "9.9.9.9", "x-forwarded-proto": "http"}
    secret = await create_token(gateway, Scope.ALL)
    assert (await ask(gateway, "GET", KEYS, secret)).status == 200
    answer = await ask(gateway, "GET", KEYS, secret, headers=proxied)
    assert (answer.status, await code_of(answer)) == (403, "insecure_transport")
    cookie = await session_of(gateway, Role.ADMIN)
    assert (await ask(gateway, "GET", KEYS, headers={"cookie": cookie})).status == 200
    assert (await ask(gateway, "GET", KEYS, headers={"cookie": cookie} | proxied)).status == 401
    form = {"username": Role.ADMIN.value, "password": f"the password of {Role.ADMIN}"}
    page = "/console/sign-in"
    answer = await ask(gateway, "POST", page, headers=FORM_HEADERS, data=form)
    assert answer.status == 303
    answer = await ask(gateway, "POST", page, headers=FORM_HEADERS | proxied, data=form)
    assert answer.status == 403
    assert "Signing in is disabled without TLS" in await answer.text()
