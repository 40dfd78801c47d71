"""Signing in and out."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import ClientResponse

from gateway.store.records import Role
from tests.console.access_api import audited
from tests.console.browser import PASSWORD, Browser, open_browser
from tests.support.gateway import RunningGateway, run_gateway

PUBLIC = "https://gateway.example.org"


def cookie(answer: ClientResponse) -> tuple[str, str, set[str]]:
    """Name, value and attributes of the only cookie that a response sets."""
    (header,) = answer.headers.getall("set-cookie")
    first, *rest = header.split("; ")
    name, _, value = first.partition("=")
    return name, value, set(rest)


async def test_without_a_password_the_page_explains_how_to_set_one(gateway: RunningGateway) -> None:
    async with open_browser(gateway) as browser:
        page = await browser.page("/console/sign-in")
        assert "gateway admin password" in page
        assert "<input" not in page
        answer = await browser.sign_in()
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


async def test_sign_in_and_out(anonymous: Browser) -> None:
    assert 'type="password"' in await anonymous.page("/console/sign-in")
    answer = await anonymous.sign_in()
    assert (answer.status, answer.headers["location"]) == (303, "/console")
    name, value, attributes = cookie(answer)
    assert name == "session"
    assert re.fullmatch(r"[\w-]{43}", value)
    assert attributes == {"HttpOnly", "Path=/", "SameSite=Strict"}
    assert (await anonymous.get("/console/sign-in")).status == 303
    assert (await anonymous.get("/console/nowhere")).status == 404
    out = await anonymous.post("/console/sign-out")
    assert (out.status, out.headers["location"]) == (303, "/console/sign-in")
    assert cookie(out)[1] == '""'
    assert (await anonymous.get("/console/nowhere", cookie=f"session={value}")).status == 303


async def test_a_wrong_password(anonymous: Browser) -> None:
    for password in ("", "wrong", PASSWORD.upper()):
        answer = await anonymous.sign_in(password)
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
        assert "Wrong name or password." in await answer.text()
        assert (await anonymous.get("/console/nowhere")).status == 303


async def test_with_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    async with (
        run_gateway(tmp_path, [], server={"public_url": PUBLIC}) as gateway,
        open_browser(gateway, host="gateway.example.org") as browser,
    ):
        await gateway.daemon.console.access.admins.set_password(PASSWORD)
        answer = await browser.sign_in()
        name, value, attributes = cookie(answer)
        assert name == "__Host-session"
        assert attributes == {"HttpOnly", "Path=/", "SameSite=Strict", "Secure"}
        response = await browser.get("/console/nowhere", cookie=f"__Host-session={value}")
        assert response.status == 404
        assert (await browser.get("/console/nowhere", cookie=f"session={value}")).status == 303


async def test_no_sign_in_without_tls(gateway: RunningGateway, anonymous: Browser) -> None:
    """The correct password is rejected too, and the page explains what to do."""
    for host in ("gateway.example.org", "192.0.2.1:8080"):
        page = await anonymous.get("/console/sign-in", host=host)
        text = await page.text()
        assert "public_url: https://" in text
        assert "<input" not in text
        answer = await anonymous.ask(
            "POST", "/console/sign-in", {"host": host}, data={"password": PASSWORD}
        )
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
    assert gateway.daemon.console.access.sessions.active() == []


async def test_every_sign_in_replaces_the_session(
    gateway: RunningGateway, anonymous: Browser
) -> None:
    ids = []
    for _ in range(3):
        _, value, _ = cookie(await anonymous.sign_in())
        ids.append(value)
    assert len(set(ids)) == 3
    assert len(gateway.daemon.console.access.sessions.active()) == 1
    async with open_browser(gateway) as other:  # without cookies
        statuses = [
            (await other.get("/console/nowhere", cookie=f"session={id_}")).status for id_ in ids
        ]
    assert statuses == [303, 303, 404]


async def test_a_planted_id_does_not_become_a_session(anonymous: Browser) -> None:
    planted = "A" * 43
    answer = await anonymous.ask(
        "POST",
        "/console/sign-in",
        {"cookie": f"session={planted}", "Sec-Fetch-Site": "same-origin"},
        data={"password": PASSWORD},
    )
    assert cookie(answer)[1] != planted


async def test_a_new_password_ends_every_session(gateway: RunningGateway, browser: Browser) -> None:
    async with open_browser(gateway) as other:
        await other.sign_in()
        await gateway.daemon.console.access.admins.set_password("another password")
        for client in (browser, other):
            assert (await client.get("/console/nowhere")).status == 303
        assert (await other.sign_in()).status == 403
        assert (await other.sign_in("another password")).status == 303


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("/console/logs?status=5xx", "/console/logs?status=5xx"),
        ("/console?since=7d", "/console?since=7d"),
        ("/console", "/console"),
        ("", "/console"),
        ("/consolex", "/console"),
        ("//evil.example/console/", "/console"),
        ("https://evil.example/console/", "/console"),
        ("/console/\\evil.example", "/console"),
        ("/console/\r\nset-cookie: x=1", "/console"),
        ("/console/sign-in", "/console"),
        ("/v1/models", "/console"),
    ],
)
async def test_the_next_path_is_validated(
    anonymous: Browser, requested: str, expected: str
) -> None:
    assert (await anonymous.sign_in(next=requested)).headers["location"] == expected


async def test_the_requested_page_follows_the_sign_in(anonymous: Browser) -> None:
    answer = await anonymous.get("/console/nowhere?a=1&b=%22%3E%3Cscript%3E")
    page = await anonymous.page(answer.headers["location"])
    assert "<script>" not in page.replace('<script src="/console', "")
    (next_path,) = re.findall(r'name="next" value="([^"]*)"', page)
    assert next_path == "/console/nowhere?a=1&amp;b=%22%3E%3Cscript%3E"


@pytest.fixture
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.console.login_throttle.DELAYS", (0.0, 0.0, 0.1))


@pytest.mark.usefixtures("short_delays")
async def test_wrong_passwords_delay_and_never_lock_out(anonymous: Browser) -> None:
    """From loopback too, which others may share: all that a proxy that is not trusted forwards."""
    for _ in range(25):
        assert (await anonymous.sign_in("wrong")).status == 403
    wrong = [anonymous.sign_in("wrong") for _ in range(20)]
    statuses = [answer.status for answer in await asyncio.gather(*wrong, anonymous.sign_in())]
    assert statuses == [403] * 20 + [303]


async def test_a_sign_in_resets_the_attempts(
    anonymous: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.login_throttle.DELAYS", (0.0, 0.0, 60.0))
    for _ in range(3):
        assert (await anonymous.sign_in("wrong")).status == 403
        assert (await anonymous.sign_in()).status == 303


async def test_attempts_count_by_client_behind_a_trusted_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.login_throttle.DELAYS", (0.0, 60.0))
    server = {"public_url": PUBLIC, "trusted_proxies": ["127.0.0.1/32"]}
    async with (
        run_gateway(tmp_path, [], server=server) as gateway,
        open_browser(gateway) as browser,
    ):

        async def attempt(client: str) -> int:
            headers = {"x-forwarded-for": f"6.6.6.6, {client}", "Sec-Fetch-Site": "same-origin"}
            answer = await browser.ask("POST", "/console/sign-in", headers, data={"password": "x"})
            return answer.status

        for number in range(25):
            assert await attempt(f"198.51.100.{number}") == 403
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(attempt("198.51.100.7"), 0.3)


async def test_the_duration_is_the_same_without_a_password(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password is hashed in either case, which takes at least 30 ms."""
    monkeypatch.setattr("gateway.admin.access.passwords._SCRYPT_N", 2**15)

    async def took(browser: Browser) -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert (await browser.sign_in("wrong")).status == 403
        return loop.time() - begun

    async with open_browser(gateway) as browser:
        without_password = await took(browser)
        await gateway.daemon.console.access.admins.set_password(PASSWORD)
        with_password = await took(browser)
    assert min(without_password, with_password) > 0.02


async def test_the_root_redirects_browsers(gateway: RunningGateway) -> None:
    async with open_browser(gateway) as browser:
        answer = await browser.get("/", accept="text/html,application/xhtml+xml,*/*;q=0.8")
        assert (answer.status, answer.headers["location"]) == (303, "/console")
        client = await browser.get("/", accept="*/*")
        assert client.status == 404
        assert "configure clients with this address" in await client.text()


async def test_the_answer_is_the_same_for_an_unknown_name(
    gateway: RunningGateway, anonymous: Browser
) -> None:
    await gateway.daemon.console.access.admins.add("alice", Role.VIEWER, PASSWORD)
    texts = set()
    for name in ("alice", "nobody", "alice\0", "\u202e", "x" * 5000):
        answer = await anonymous.sign_in("wrong", username=name)
        assert answer.status == 403
        texts.add(re.sub(r' value="[^"]*"', "", await answer.text()))
    assert len(texts) == 1


async def test_admins_sign_in_by_name(gateway: RunningGateway, anonymous: Browser) -> None:
    await gateway.daemon.console.access.admins.add("zo\u00eb", Role.VIEWER, "the password of zoe")
    assert 'value="admin"' in await anonymous.page("/console/sign-in")
    assert (await anonymous.sign_in(username="zo\u00eb")).status == 403
    assert (await anonymous.sign_in("the password of zoe", username="ZO\u00cb ")).status == 303
    assert "zo\u00eb (viewer)" in await anonymous.page("/console")


async def test_a_success_does_not_reset_attempts_for_another_name(
    gateway: RunningGateway, anonymous: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an admin could guess the password of another one without delay."""
    monkeypatch.setattr("gateway.console.login_throttle.DELAYS", (0.0, 0.0, 0.0, 60.0))
    await gateway.daemon.console.access.admins.add("mallory", Role.VIEWER, "mallory's password")
    assert (await anonymous.sign_in("wrong")).status == 403
    assert (await anonymous.sign_in("mallory's password", username="mallory")).status == 303
    assert (await anonymous.sign_in("wrong")).status == 403
    with pytest.raises(TimeoutError):
        for _ in range(2):
            await asyncio.wait_for(anonymous.sign_in("wrong"), 1)


@pytest.mark.slow("hashes many passwords")
async def test_a_flood_of_wrong_passwords(
    gateway: RunningGateway, anonymous: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They leave few rows, which count all of them; the right password is accepted meanwhile."""
    monkeypatch.setattr("gateway.console.login_throttle.DELAYS", (0.0,))
    monkeypatch.setattr("gateway.admin.access.passwords._SCRYPT_N", 2)
    access, guesses = gateway.daemon.console.access, 1000
    for number in range(0, guesses, 100):
        names = [f"name {number}", "admin"] * 50
        wrong = [anonymous.sign_in("my other secret", username=name) for name in names]
        assert {answer.status for answer in await asyncio.gather(*wrong)} == {403}
    await access.audit.close()
    rows = await audited(gateway, action="sign_in.failed")
    assert sum(row.times for row in rows) == guesses
    assert len(rows) <= 30
    assert {row.actor for row in rows} == {"admin: admin", "unknown"}
    assert "secret" not in repr(rows)
