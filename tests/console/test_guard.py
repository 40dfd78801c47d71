"""The way in: everything is denied, whatever is asked, until somebody has signed in."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.web_urldispatcher import PrefixedSubAppResource

from gateway.app import build_app
from gateway.console.guard import SECURITY_HEADERS, STATIC_SECONDS
from gateway.core.formats import Format
from tests.console.browser import FORM_HEADERS, Browser, open_browser
from tests.support.gateway import RunningGateway, channels, run_gateway

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

STRANGE_PATHS = (
    "/console/",
    "/console/nowhere",
    "/console/logs/../tokens",
    "/console/sign-in/",
    "/console/sign-in/x",
    "/console/Sign-in",
    "/console/static",
    "/console/%73ign-out",
    "/console//sign-in",
    "/admin/api/",
    "/admin/api/nowhere",
    "/admin/api/password",
    "/admin/api/sessions",
)


def mounted(gateway: RunningGateway) -> Iterator[web.AbstractRoute]:
    """Every route of the applications beside the endpoints."""
    app = build_app(gateway.daemon.runtime, gateway.daemon.console)
    for resource in app.router.resources():
        if isinstance(resource, PrefixedSubAppResource):
            yield from resource


def paths(gateway: RunningGateway) -> list[str]:
    found = {
        re.sub(r"\{[^}]*\}", "x", route.resource.canonical)
        for route in mounted(gateway)
        if route.resource is not None
    }
    return sorted(found | set(STRANGE_PATHS))


ENDLESS = "/admin/api/requests/events"
"""Its answer ends when the session does, unless the question is wrong."""


def is_open(path: str) -> bool:
    return path == "/console/sign-in"


def denials(method: str, path: str) -> tuple[int, ...]:
    """The statuses that say no to a stranger."""
    if path.startswith("/admin/api"):
        return (401,)
    if path == "/console/static":
        return (403, 404, 405)
    return (303,) if method in ("GET", "HEAD") else (403,)


async def test_without_a_session_every_path_is_denied(
    gateway: RunningGateway, stranger: Browser
) -> None:
    asked = 0
    all_paths = paths(gateway)
    assert {"/console/tokens", "/console/sign-out", "/admin/api/keys/x"} <= set(all_paths)
    for path, method in product(all_paths, METHODS):
        if is_open(path):
            continue
        for cookie in ("", "session=", "session=x", "__Host-session=x"):
            headers = FORM_HEADERS | ({"cookie": cookie} if cookie else {})
            answer = await stranger.ask(method, path, headers)
            assert answer.status in denials(method, path), (method, path, answer.status)
            if answer.status == 303:
                assert answer.headers["location"].startswith("/console/sign-in?next=%2Fconsole")
            assert_protected(answer.headers, path)
            asked += 1
    assert asked > 700


async def test_every_answer_is_protected(gateway: RunningGateway, browser: Browser) -> None:
    """Also those that are found, refused, wrong, or not there."""
    for path in paths(gateway):
        if path == ENDLESS:
            path += "?status=wrong"
        for headers in ({}, {"Sec-Fetch-Site": "cross-site"}):
            for method in ("GET", "HEAD", "OPTIONS") if not headers else METHODS:
                answer = await browser.ask(method, path, headers)
                assert answer.status != 401
                if method not in ("GET", "HEAD", "OPTIONS"):
                    assert answer.status == 403, (method, path)
                assert_protected(answer.headers, path)


def assert_protected(headers: Mapping[str, str], path: str) -> None:
    for name, value in SECURITY_HEADERS.items():
        assert name in headers, (path, name)
        if not path.startswith("/console/charts/") and name != "Cache-Control":
            assert headers[name] == value
    assert "script-src 'unsafe" not in headers["Content-Security-Policy"]
    assert headers["server"] == "model-gateway"
    assert headers["x-request-id"].startswith("req_")
    assert "access-control-allow-origin" not in headers


async def test_only_what_never_changes_is_kept(browser: Browser) -> None:
    page = await browser.get("/console/nowhere")
    assert page.headers["cache-control"] == "no-store"
    (sheet,) = re.findall(r'href="(/console/static/style[^"]+)"', await page.text())
    assert "?v=" in sheet
    style = await browser.get(sheet)
    assert (style.status, style.content_type) == (200, "text/css")
    assert style.headers["cache-control"] == f"max-age={STATIC_SECONDS}" == "max-age=604800"
    missing = await browser.get("/console/static/nowhere.css")
    assert (missing.status, missing.headers["cache-control"]) == (404, "no-store")


async def test_what_nobody_must_be_signed_in_for(stranger: Browser) -> None:
    for path in ("/console/sign-in", "/console/static/style.css", "/console/static/script.js"):
        assert (await stranger.get(path)).status == 200
    for path in ("/console/static/", "/console/static/..%2fapp.py", "/console/static/../app.py"):
        assert (await stranger.get(path)).status in (303, 403, 404)


async def test_a_script_is_told_so_instead_of_being_led_away(stranger: Browser) -> None:
    answer = await stranger.get("/console/logs", **{"Sec-Fetch-Dest": "empty"})
    assert answer.status == 401


OWN, ELSEWHERE = "http://127.0.0.1:{port}", "https://evil.example"
SITES = (None, "same-origin", "none", "same-site", "cross-site", "nonsense", "")
ORIGINS = (
    None,
    OWN,
    "null",
    "",
    ELSEWHERE,
    "https://127.0.0.1:{port}",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "http://localhost:{port}",
    "http://127.0.0.1:{port}.evil.example",
)
PASSING = {
    (None, None),
    (None, OWN),
    ("same-origin", None),
    ("same-origin", OWN),
    ("same-origin", "null"),
    ("none", None),
    ("none", OWN),
}
"""Everything else is another site's, or could be. Without either header it is no browser; with the
origin alone it is one that does not tell the site."""


@pytest.mark.parametrize("signed_in", [True, False])
@pytest.mark.parametrize("path", ["/console/nowhere", "/admin/api/nowhere"])
async def test_the_matrix_of_headers(
    gateway: RunningGateway, stranger: Browser, path: str, signed_in: bool
) -> None:
    """Nothing is at the paths, so 404 says that the guard let it pass."""
    if signed_in:
        await stranger.sign_in()
    port = gateway.address.rpartition(":")[2]
    passed = set()
    for site, origin, method in product(SITES, ORIGINS, METHODS):
        headers = {"Sec-Fetch-Site": site, "Origin": origin and origin.format(port=port)}
        sent = {name: value for name, value in headers.items() if value is not None}
        status = (await stranger.ask(method, path, sent)).status
        safe = method in ("GET", "HEAD", "OPTIONS")
        if not safe and (site, origin) not in PASSING:
            assert status == 403, (site, origin, method)
        elif signed_in:
            assert status == 404, (site, origin, method)
            passed.add((site, origin))
        else:
            assert status in denials(method, path), (site, origin, method)
    assert not signed_in or passed >= PASSING


async def test_a_form_of_another_site_changes_nothing(
    gateway: RunningGateway, browser: Browser
) -> None:
    before = await gateway.operations.list_keys()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind} if kind else {}
        for site, status in (("cross-site", 403), ("same-origin", 415)):
            answer = await browser.ask(
                "POST",
                "/admin/api/keys",
                headers | {"Sec-Fetch-Site": site},
                data=b'{"name": "stolen"}',
                skip_auto_headers=["content-type"],
            )
            assert answer.status == status
            assert (await answer.json())["error"]["code"] in (
                "cross_site",
                "unsupported_media_type",
            )
    assert await gateway.operations.list_keys() == before


async def test_pages_take_nothing_but_forms(browser: Browser) -> None:
    for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
        answer = await browser.ask(
            "POST", "/console/sign-out", FORM_HEADERS | {"content-type": kind}, data=b"{}"
        )
        assert answer.status == 415
    assert (await browser.get("/console/nowhere")).status == 404, "still signed in"


async def test_a_stranger_can_send_no_large_body(stranger: Browser) -> None:
    answer = await stranger.post("/console/sign-in", {"password": "x" * 20_000})
    assert answer.status == 413


async def test_the_api_over_tcp_is_the_one_of_the_socket(
    gateway: RunningGateway, browser: Browser
) -> None:
    minted = await browser.ask(
        "POST", "/admin/api/keys", FORM_HEADERS, json={"name": "made here", "group": "default"}
    )
    assert minted.status == 201
    key = (await minted.json())["key"]
    assert (await gateway.post(Format.CHAT, key=key)).status != 401
    accounts = await (await browser.get("/admin/api/accounts")).json()
    assert accounts["accounts"]


@pytest.mark.parametrize("method", METHODS)
async def test_the_password_is_nothing_for_the_network(browser: Browser, method: str) -> None:
    for path in ("/admin/api/password", "/admin/api/sessions"):
        answer = await browser.ask(method, path, FORM_HEADERS, json={"password": "x" * 20})
        assert answer.status == 404


async def test_no_exchange_is_opened(gateway: RunningGateway, browser: Browser) -> None:
    for path in ("/console", "/console/nowhere", "/admin/api/keys", "/admin/api/nowhere"):
        await browser.get(path)
    await gateway.get("/v1/models")
    assert [row.endpoint for row in await gateway.rows(0)] in ([], ["/v1/models"])
    assert gateway.daemon.runtime.active_requests == 0
    assert gateway.daemon.runtime.current.active_requests == 0


async def test_it_ends_what_it_began_when_the_browser_leaves(
    gateway: RunningGateway, browser: Browser, tmp_path: Path
) -> None:
    """Else the ledger would have a key that memory does not know of."""
    locker = sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    cookies = browser.http.cookie_jar
    body = {"name": "hasty", "group": "default"}
    async with ClientSession(gateway.address, cookie_jar=cookies) as http:
        with pytest.raises(TimeoutError):
            await http.post(
                "/admin/api/keys", json=body, headers=FORM_HEADERS, timeout=ClientTimeout(0.2)
            )
    await asyncio.sleep(0.1)
    locker.close()
    async with asyncio.timeout(5):
        while not (
            made := [each for each in await gateway.operations.list_keys() if each.name == "hasty"]
        ):
            await asyncio.sleep(0.02)
        while gateway.daemon.runtime.registry.token(made[0].id) is None:
            await asyncio.sleep(0.02)


async def test_who_comes_without_tls_from_elsewhere_has_no_session(
    browser: Browser,
) -> None:
    """The cookie is right, but the name under which the gateway was asked is not a local one."""
    assert (await browser.get("/console/nowhere")).status == 404
    for host in ("gateway.example", "192.0.2.1:8080", "localhost.evil.example", "[2001:db8::1]"):
        assert (await browser.get("/console/nowhere", host=host)).status == 303
    for host in ("localhost:8080", "127.0.0.1", "[::1]:80", "gateway.localhost"):
        cookie = "; ".join(f"{each.key}={each.value}" for each in browser.http.cookie_jar)
        answer = await browser.get("/console/nowhere", host=host, cookie=cookie)
        assert answer.status == 404


async def test_cors_of_clients_is_not_for_the_console(tmp_path: Path) -> None:
    async with (
        run_gateway(tmp_path, channels("http://127.0.0.1:9"), server={"cors": ["*"]}) as gateway,
        open_browser(gateway) as browser,
    ):
        for path in ("/console/sign-in", "/admin/api/keys", "/console/static/style.css"):
            for method in ("GET", "OPTIONS"):
                answer = await browser.ask(method, path, {"origin": ELSEWHERE})
                assert "access-control-allow-origin" not in answer.headers
        models = await browser.ask("GET", "/v1/models", {"origin": ELSEWHERE})
        assert models.headers["access-control-allow-origin"] == ELSEWHERE


async def test_what_is_no_proper_http_is_refused_here_too(gateway: RunningGateway) -> None:
    port = int(gateway.address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /console/sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        b"transfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n"
    )
    async with asyncio.timeout(5):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    writer.close()
    await writer.wait_closed()
