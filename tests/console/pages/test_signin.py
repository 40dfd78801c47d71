"""Signing in and out, as a browser does it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import ClientResponse

from gateway.console.login_throttle import MAX_PER_ADDRESS, MAX_TOTAL
from tests.console.browser import PASSWORD, Browser, open_browser
from tests.support.gateway import RunningGateway, run_gateway

PUBLIC = "https://gateway.example.org"


def cookie(answer: ClientResponse) -> tuple[str, str, set[str]]:
    """Name, value and attributes of the one cookie that an answer sets."""
    (told,) = answer.headers.getall("set-cookie")
    first, *rest = told.split("; ")
    name, _, value = first.partition("=")
    return name, value, set(rest)


async def test_without_a_password_the_page_says_how_to_set_one(gateway: RunningGateway) -> None:
    async with open_browser(gateway) as browser:
        page = await browser.page("/console/sign-in")
        assert "gateway admin password" in page
        assert "<input" not in page
        answer = await browser.sign_in()
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


async def test_the_way_in_and_out(stranger: Browser) -> None:
    assert 'type="password"' in await stranger.page("/console/sign-in")
    answer = await stranger.sign_in()
    assert (answer.status, answer.headers["location"]) == (303, "/console")
    name, value, attributes = cookie(answer)
    assert name == "session"
    assert re.fullmatch(r"[\w-]{43}", value)
    assert attributes == {"HttpOnly", "Path=/", "SameSite=Strict"}
    assert (await stranger.get("/console/sign-in")).status == 303
    assert (await stranger.get("/console/nowhere")).status == 404
    out = await stranger.post("/console/sign-out")
    assert (out.status, out.headers["location"]) == (303, "/console/sign-in")
    assert cookie(out)[1] == '""'
    assert (await stranger.get("/console/nowhere", cookie=f"session={value}")).status == 303


async def test_a_wrong_password_opens_nothing(stranger: Browser) -> None:
    for typed in ("", "wrong", PASSWORD.upper()):
        answer = await stranger.sign_in(typed)
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
        assert "Wrong password." in await answer.text()
        assert (await stranger.get("/console/nowhere")).status == 303


async def test_where_tls_is_declared_the_cookie_is_for_tls_alone(tmp_path: Path) -> None:
    async with (
        run_gateway(tmp_path, [], server={"public_url": PUBLIC}) as gateway,
        open_browser(gateway, host="gateway.example.org") as browser,
    ):
        await gateway.daemon.console.sessions.set_password(PASSWORD)
        answer = await browser.sign_in()
        name, value, attributes = cookie(answer)
        assert name == "__Host-session"
        assert attributes == {"HttpOnly", "Path=/", "SameSite=Strict", "Secure"}
        found = await browser.get("/console/nowhere", cookie=f"__Host-session={value}")
        assert found.status == 404
        assert (await browser.get("/console/nowhere", cookie=f"session={value}")).status == 303


async def test_an_open_line_is_no_way_in(gateway: RunningGateway, stranger: Browser) -> None:
    """The right password too is refused, without a look at it, and the page says what to do."""
    for host in ("gateway.example.org", "192.0.2.1:8080"):
        page = await stranger.get("/console/sign-in", host=host)
        text = await page.text()
        assert "public_url: https://" in text
        assert "<input" not in text
        answer = await stranger.ask(
            "POST", "/console/sign-in", {"host": host}, data={"password": PASSWORD}
        )
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
    assert gateway.daemon.console.sessions.active() == []


async def test_every_time_a_new_id_and_the_old_one_is_over(
    gateway: RunningGateway, stranger: Browser
) -> None:
    seen = []
    for _ in range(3):
        _, value, _ = cookie(await stranger.sign_in())
        seen.append(value)
    assert len(set(seen)) == 3
    assert len(gateway.daemon.console.sessions.active()) == 1
    async with open_browser(gateway) as other:  # who has no cookies of its own
        statuses = [
            (await other.get("/console/nowhere", cookie=f"session={id_}")).status for id_ in seen
        ]
    assert statuses == [303, 303, 404]


async def test_an_id_from_elsewhere_never_becomes_a_session(stranger: Browser) -> None:
    planted = "A" * 43
    answer = await stranger.ask(
        "POST",
        "/console/sign-in",
        {"cookie": f"session={planted}", "Sec-Fetch-Site": "same-origin"},
        data={"password": PASSWORD},
    )
    assert cookie(answer)[1] != planted


async def test_a_new_password_ends_every_session(gateway: RunningGateway, browser: Browser) -> None:
    async with open_browser(gateway) as other:
        await other.sign_in()
        assert await gateway.daemon.console.sessions.set_password("another password") == 2
        for each in (browser, other):
            assert (await each.get("/console/nowhere")).status == 303
        assert (await other.sign_in()).status == 403
        assert (await other.sign_in("another password")).status == 303


@pytest.mark.parametrize(
    ("asked", "led"),
    [
        ("/console/logs?status=5xx", "/console/logs?status=5xx"),
        ("/console?range=7d", "/console?range=7d"),
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
async def test_where_it_leads(stranger: Browser, asked: str, led: str) -> None:
    assert (await stranger.sign_in(next=asked)).headers["location"] == led


async def test_who_looked_for_a_page_gets_there(stranger: Browser) -> None:
    answer = await stranger.get("/console/nowhere?a=1&b=%22%3E%3Cscript%3E")
    page = await stranger.page(answer.headers["location"])
    assert "<script>" not in page.replace('<script src="/console', "")
    (leading,) = re.findall(r'name="next" value="([^"]*)"', page)
    assert leading == "/console/nowhere?a=1&amp;b=%22%3E%3Cscript%3E"


async def test_five_tries_a_minute_also_from_loopback(stranger: Browser) -> None:
    for _ in range(MAX_PER_ADDRESS):
        assert (await stranger.sign_in("wrong")).status == 403
    for typed in ("wrong", PASSWORD):
        answer = await stranger.sign_in(typed)
        assert answer.status == 429
        assert 50 <= int(answer.headers["retry-after"]) <= 60
        assert "set-cookie" not in answer.headers
    forged = await stranger.ask(
        "POST",
        "/console/sign-in",
        {"x-forwarded-for": "203.0.113.99", "Sec-Fetch-Site": "same-origin"},
        data={"password": "wrong"},
    )
    assert forged.status == 429, "a proxy that nobody trusts says nothing"


async def test_who_signs_in_has_all_tries_again(stranger: Browser) -> None:
    for _ in range(3):
        for _ in range(MAX_PER_ADDRESS - 1):
            assert (await stranger.sign_in("wrong")).status == 403
        assert (await stranger.sign_in()).status == 303


async def test_behind_a_proxy_tries_are_counted_by_client_and_in_all(tmp_path: Path) -> None:
    server = {"public_url": PUBLIC, "trusted_proxies": ["127.0.0.1/32"]}
    async with (
        run_gateway(tmp_path, [], server=server) as gateway,
        open_browser(gateway) as browser,
    ):

        async def knock(client: str) -> int:
            headers = {"x-forwarded-for": f"6.6.6.6, {client}", "Sec-Fetch-Site": "same-origin"}
            return (
                await browser.ask("POST", "/console/sign-in", headers, data={"password": "x"})
            ).status

        statuses = await asyncio.gather(*(knock("203.0.113.7") for _ in range(MAX_PER_ADDRESS + 3)))
        assert sorted(statuses) == [403] * MAX_PER_ADDRESS + [429] * 3
        others = [f"198.51.100.{number}" for number in range(MAX_TOTAL)]
        statuses = [await knock(each) for each in others]
        assert statuses == [403] * (MAX_TOTAL - MAX_PER_ADDRESS) + [429] * MAX_PER_ADDRESS


async def test_the_time_does_not_tell_whether_there_is_a_password(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is hashed in either case, which takes 30 ms at least."""
    monkeypatch.setattr("gateway.admin.sessions._SCRYPT_N", 2**15)

    async def took(browser: Browser) -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert (await browser.sign_in("wrong")).status == 403
        return loop.time() - begun

    async with open_browser(gateway) as browser:
        none = await took(browser)
        await gateway.daemon.console.sessions.set_password(PASSWORD)
        wrong = await took(browser)
    assert min(none, wrong) > 0.02


async def test_a_browser_is_led_from_the_root(gateway: RunningGateway) -> None:
    async with open_browser(gateway) as browser:
        answer = await browser.get("/", accept="text/html,application/xhtml+xml,*/*;q=0.8")
        assert (answer.status, answer.headers["location"]) == (303, "/console")
        client = await browser.get("/", accept="*/*")
        assert client.status == 404
        assert "configure clients with this address" in await client.text()
