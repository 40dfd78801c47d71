"""Without a session every path is denied; cross-site requests are rejected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.web_urldispatcher import PrefixedSubAppResource

from gateway.app import build_app
from gateway.console.guard import SECURITY_HEADERS, STATIC_SECONDS
from gateway.core.formats import Format
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.console.browser import FORM_HEADERS, Browser, open_browser
from tests.support.databases import locked
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

UNUSUAL_PATHS = (
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
    """Every route of the console and of the admin API."""
    app = build_app(gateway.daemon.runtime, gateway.daemon.console)
    for resource in app.router.resources():
        if isinstance(resource, PrefixedSubAppResource):
            yield from resource


def paths(gateway: RunningGateway) -> list[str]:
    canonical = {
        re.sub(r"\{[^}]*\}", "x", route.resource.canonical)
        for route in mounted(gateway)
        if route.resource is not None
    }
    return sorted(canonical | set(UNUSUAL_PATHS))


ENDLESS = "/admin/api/requests/events"
"""Its response ends with the session, or at once if the query is invalid."""


HOLDERS_PATHS = ("/console/my", "/console/my/connect")


def is_open(path: str) -> bool:
    return path in ("/console/sign-in", "/console/sign-in/key")


def denials(method: str, path: str) -> tuple[int, ...]:
    """The statuses of a request without a session."""
    if path.startswith("/admin/api"):
        return (401,)
    if path == "/console/static":
        return (403, 404, 405)
    return (303,) if method in ("GET", "HEAD") else (403,)


async def test_without_a_session_every_path_is_denied(
    gateway: RunningGateway, anonymous: Browser
) -> None:
    count = 0
    all_paths = paths(gateway)
    assert {"/console/tokens", "/console/sign-out", "/admin/api/keys/x"} <= set(all_paths)
    for path, method in product(all_paths, METHODS):
        if is_open(path):
            continue
        for cookie in ("", "session=", "session=x", "__Host-session=x"):
            headers = FORM_HEADERS | ({"cookie": cookie} if cookie else {})
            answer = await anonymous.ask(method, path, headers)
            assert answer.status in denials(method, path), (method, path, answer.status)
            if answer.status == 303:
                assert answer.headers["location"].startswith("/console/sign-in?next=%2Fconsole")
            assert_protected(answer.headers, path)
            count += 1
    assert count > 700


async def test_a_holder_of_a_key_reaches_only_the_pages_of_that_key(
    gateway: RunningGateway, anonymous: Browser
) -> None:
    """Of paths that do not exist it is said that they do not."""
    assert (await anonymous.post("/console/sign-in/key", {"key": gateway.key})).status == 303
    reached = set()
    for path, method in product(paths(gateway), METHODS):
        if is_open(path) or path == "/console/my/sign-out":
            continue
        answer = await anonymous.ask(method, path, FORM_HEADERS)
        if path == "/console/static":
            assert answer.status in (403, 404, 405)
        elif answer.status == 200:
            reached.add(f"{method} {path}")
        else:
            assert answer.status in (403, 404, 405), (method, path, answer.status)
        assert_protected(answer.headers, path)
    reads = {f"{method} {path}" for path in HOLDERS_PATHS for method in ("GET", "HEAD")}
    assert reached == reads


async def test_every_response_has_the_security_headers(
    gateway: RunningGateway, browser: Browser
) -> None:
    """Also of redirects, rejections, errors and unknown paths."""
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
        if name != "Cache-Control":
            assert headers[name] == value
    assert "script-src 'unsafe" not in headers["Content-Security-Policy"]
    assert headers["server"] == "model-gateway"
    assert headers["x-request-id"].startswith("req_")
    assert "access-control-allow-origin" not in headers


async def test_only_hashed_assets_are_cached(browser: Browser) -> None:
    page = await browser.get("/console/nowhere")
    assert page.headers["cache-control"] == "no-store"
    (sheet,) = re.findall(r'href="(/console/static/style[^"]+)"', await page.text())
    assert "?v=" in sheet
    style = await browser.get(sheet)
    assert (style.status, style.content_type) == (200, "text/css")
    assert style.headers["cache-control"] == f"max-age={STATIC_SECONDS}" == "max-age=604800"
    missing = await browser.get("/console/static/nowhere.css")
    assert (missing.status, missing.headers["cache-control"]) == (404, "no-store")


async def test_public_paths(anonymous: Browser) -> None:
    for path in ("/console/sign-in", "/console/static/style.css", "/console/static/copy.js"):
        assert (await anonymous.get(path)).status == 200
    for path in ("/console/static/", "/console/static/..%2fapp.py", "/console/static/../app.py"):
        assert (await anonymous.get(path)).status in (303, 403, 404)


async def test_scripts_get_401_instead_of_a_redirect(anonymous: Browser) -> None:
    answer = await anonymous.get("/console/logs", **{"Sec-Fetch-Dest": "empty"})
    assert answer.status == 401


SAME_ORIGIN, ELSEWHERE = "http://127.0.0.1:{port}", "https://evil.example"
SITES = (None, "same-origin", "none", "same-site", "cross-site", "nonsense", "")
ORIGINS = (
    None,
    SAME_ORIGIN,
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
    (None, SAME_ORIGIN),
    ("same-origin", None),
    ("same-origin", SAME_ORIGIN),
    ("same-origin", "null"),
    ("none", None),
    ("none", SAME_ORIGIN),
}
"""Everything else is, or could be, from another site. Without either header the client is not a
browser; with the origin alone it is a browser that does not send Sec-Fetch-Site."""


@pytest.mark.parametrize("signed_in", [True, False])
@pytest.mark.parametrize("path", ["/console/nowhere", "/admin/api/nowhere"])
async def test_the_matrix_of_headers(
    gateway: RunningGateway, anonymous: Browser, path: str, signed_in: bool
) -> None:
    """The paths do not exist, so 404 means that the guard accepted the request."""
    if signed_in:
        await anonymous.sign_in()
    port = gateway.address.rpartition(":")[2]
    passed = set()
    for site, origin, method in product(SITES, ORIGINS, METHODS):
        headers = {"Sec-Fetch-Site": site, "Origin": origin and origin.format(port=port)}
        sent = {name: value for name, value in headers.items() if value is not None}
        status = (await anonymous.ask(method, path, sent)).status
        safe = method in ("GET", "HEAD", "OPTIONS")
        if not safe and (site, origin) not in PASSING:
            assert status == 403, (site, origin, method)
        elif signed_in:
            assert status == 404, (site, origin, method)
            passed.add((site, origin))
        else:
            assert status in denials(method, path), (site, origin, method)
    assert not signed_in or passed >= PASSING


async def test_cross_site_forms_are_rejected(gateway: RunningGateway, browser: Browser) -> None:
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


async def test_pages_accept_only_forms(browser: Browser) -> None:
    for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
        answer = await browser.ask(
            "POST", "/console/sign-out", FORM_HEADERS | {"content-type": kind}, data=b"{}"
        )
        assert answer.status == 415
    assert (await browser.get("/console/nowhere")).status == 404, "still signed in"


async def test_a_large_body_without_a_session(anonymous: Browser) -> None:
    answer = await anonymous.post("/console/sign-in", {"password": "x" * 20_000})
    assert answer.status == 413


async def test_the_admin_api_over_tcp(
    gateway: RunningGateway, browser: Browser, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    created = await browser.ask(
        "POST", "/admin/api/keys", FORM_HEADERS, json={"name": "created here", "group": "default"}
    )
    assert created.status == 201
    key = (await created.json())["key"]
    assert (await gateway.post(Format.CHAT, key=key)).status == 200
    accounts = await (await browser.get("/admin/api/accounts")).json()
    assert accounts["accounts"]


@pytest.mark.parametrize("method", METHODS)
async def test_password_and_sessions_are_not_served_over_tcp(browser: Browser, method: str) -> None:
    for path in ("/admin/api/password", "/admin/api/sessions"):
        answer = await browser.ask(method, path, FORM_HEADERS, json={"password": "x" * 20})
        assert answer.status == 404


async def test_console_requests_are_not_logged_as_exchanges(
    gateway: RunningGateway, browser: Browser
) -> None:
    for path in ("/console", "/console/nowhere", "/admin/api/keys", "/admin/api/nowhere"):
        await browser.get(path)
    await gateway.get("/v1/models")
    assert [row.endpoint for row in await gateway.rows(0)] in ([], ["/v1/models"])
    assert gateway.daemon.runtime.active_requests == 0
    assert gateway.daemon.runtime.current.active_requests == 0


async def test_a_change_completes_after_a_disconnect(
    gateway: RunningGateway, browser: Browser, tmp_path: Path
) -> None:
    """Otherwise the database would have a key that memory does not have."""
    cookies = browser.http.cookie_jar
    body = {"name": "hasty", "group": "default"}
    with locked(tmp_path / DATABASE_NAME):
        async with ClientSession(gateway.address, cookie_jar=cookies) as http:
            with pytest.raises(TimeoutError):
                await http.post(
                    "/admin/api/keys", json=body, headers=FORM_HEADERS, timeout=ClientTimeout(0.2)
                )
        await asyncio.sleep(0.1)
    async with asyncio.timeout(5):
        while not (
            created := [
                item for item in await gateway.operations.list_keys() if item.name == "hasty"
            ]
        ):
            await asyncio.sleep(0.02)
        while gateway.daemon.runtime.registry.token(created[0].id) is None:
            await asyncio.sleep(0.02)


async def test_no_session_without_tls_from_other_hosts(
    browser: Browser,
) -> None:
    """The cookie is valid, but the host is not a loopback name."""
    assert (await browser.get("/console/nowhere")).status == 404
    for host in ("gateway.example", "192.0.2.1:8080", "localhost.evil.example", "[2001:db8::1]"):
        assert (await browser.get("/console/nowhere", host=host)).status == 303
    for host in ("localhost:8080", "127.0.0.1", "[::1]:80", "gateway.localhost"):
        cookie = "; ".join(f"{item.key}={item.value}" for item in browser.http.cookie_jar)
        answer = await browser.get("/console/nowhere", host=host, cookie=cookie)
        assert answer.status == 404


async def test_cors_does_not_apply_to_the_console(tmp_path: Path) -> None:
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


async def test_malformed_http_is_rejected(gateway: RunningGateway) -> None:
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
