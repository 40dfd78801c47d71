"""All routes, and the errors of others."""

from __future__ import annotations

import pytest

from gateway.app import build_app
from gateway.core.formats import Format
from gateway.server.passthrough.endpoint import ENDPOINTS
from tests.support.gateway import PATHS, RunningGateway, request_body

pytestmark = pytest.mark.shared_gateway

UPGRADE = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}


async def test_all_routes(gateway: RunningGateway) -> None:
    """Nothing else is reachable on the TCP port, in particular no admin path."""
    router = build_app(gateway.daemon.runtime).router
    assert {(route.method, route.resource.canonical) for route in router.routes()} == {
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses"),
        ("POST", "/v1/responses/input_tokens"),
        ("POST", "/v1/responses/compact"),
        ("GET", "/v1/responses/{id}"),
        ("DELETE", "/v1/responses/{id}"),
        ("GET", "/v1/responses/{id}/input_items"),
        ("POST", "/v1/responses/{id}/cancel"),
        *(("POST", path) for path in ENDPOINTS),
        ("*", "/v1/{path}{anything}"),
        ("POST", "/v1/conversations"),
        ("GET", "/v1/conversations/{conversation}"),
        ("POST", "/v1/conversations/{conversation}"),
        ("DELETE", "/v1/conversations/{conversation}"),
        ("GET", "/v1/conversations/{conversation}/items"),
        ("POST", "/v1/conversations/{conversation}/items"),
        ("GET", "/v1/conversations/{conversation}/items/{item}"),
        ("DELETE", "/v1/conversations/{conversation}/items/{item}"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{id}"),
        ("GET", "/model/info"),
        ("GET", "/v1/model/info"),
        ("GET", "/healthz"),
        ("HEAD", "/healthz"),
        ("GET", "/readyz"),
        ("HEAD", "/readyz"),
        ("GET", "/metrics"),
        ("HEAD", "/metrics"),
        ("GET", "/"),
        ("HEAD", "/"),
        ("HEAD", "/v1/{anything}"),
    }


@pytest.mark.parametrize("path", ["/", "/v1/", *PATHS.values(), "/v1/models", "/v1/whatever"])
async def test_head_requests(gateway: RunningGateway, path: str) -> None:
    async with gateway.http.head(path) as answer:
        assert answer.status == 200
        assert await answer.read() == b""
        assert answer.headers["request-id"].startswith("req_")


async def test_head_requests_of_other_paths(gateway: RunningGateway) -> None:
    async with gateway.http.head("/api/hello") as answer:
        assert answer.status == 404


async def test_websocket_upgrades_are_rejected_with_426(gateway: RunningGateway) -> None:
    for headers in (UPGRADE, UPGRADE | {"upgrade": "WebSocket"}):
        answer = await gateway.get("/v1/responses", **headers)
        assert answer.status == 426
        assert answer.headers["upgrade"] == "HTTP/1.1"
        assert (await answer.json())["error"]["code"] == "websocket_not_supported"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", PATHS[Format.CHAT], {"POST"}),
        ("GET", PATHS[Format.MESSAGES], {"POST"}),
        ("GET", PATHS[Format.RESPONSES], {"POST"}),
        ("DELETE", PATHS[Format.RESPONSES], {"GET", "POST"}),
        ("PUT", PATHS[Format.CHAT], {"POST"}),
        ("POST", "/v1/models", {"GET"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
        ("PATCH", "/v1/messages", {"POST"}),
    ],
)
async def test_methods(gateway: RunningGateway, method: str, path: str, allowed: set[str]) -> None:
    async with gateway.http.request(method, path) as answer:
        assert answer.status == 405
        listed = set(answer.headers["allow"].split(", "))
        assert listed - {"HEAD"} == allowed - {"HEAD"}
        assert ("HEAD" in listed) == ("GET" in listed)
        message = (await answer.json())["error"]["message"]
        assert message == f"Method not allowed: use {' or '.join(sorted(allowed - {'HEAD'}))}"


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("POST", "/v1/completions", "Invalid URL (POST /v1/completions)"),
        (
            "POST",
            "/v1/messages/batches",
            "Invalid URL (POST /v1/messages/batches): the gateway does not serve "
            "/v1/messages/batches: send the requests one by one",
        ),
        (
            "POST",
            "/v1/v1/messages",
            "Invalid URL (POST /v1/v1/messages): remove /v1 from the base address",
        ),
        (
            "POST",
            "/v1/v1/chat/completions",
            "Invalid URL (POST /v1/v1/chat/completions): remove /v1 from the base address",
        ),
        (
            "POST",
            "/chat/completions",
            "Invalid URL (POST /chat/completions): add /v1 to the base address",
        ),
        ("POST", "/responses", "Invalid URL (POST /responses): add /v1 to the base address"),
        ("GET", "/models", "Invalid URL (GET /models): add /v1 to the base address"),
        (
            "POST",
            "/messages",
            "Invalid URL (POST /messages): add /v1 to the base address",
        ),
        (
            "GET",
            "/",
            "Invalid URL (GET /): configure clients with this address, "
            "for chat and responses plus /v1",
        ),
        ("GET", "/admin/keys", "Invalid URL (GET /admin/keys)"),
        ("GET", "/v1/messages/../../etc/passwd", "Invalid URL (GET /etc/passwd)"),
    ],
)
async def test_unknown_paths(gateway: RunningGateway, method: str, path: str, message: str) -> None:
    async with gateway.http.request(method, path, json=request_body(Format.CHAT)) as answer:
        assert answer.status == 404
        assert answer.headers["x-should-retry"] == "false"
        assert (await answer.json())["error"]["message"] == message
    assert not await gateway.rows(0), "a flood must not fill the ledger"
