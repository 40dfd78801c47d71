"""Clients with a wrong base URL get a hint and are counted, in a bounded number of entries."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from yarl import URL

from gateway.core.formats import Format
from gateway.server.http.base_address import base_address_hint, count_bad_path
from tests.support.gateway import RunningGateway, channels, run_gateway

pytestmark = pytest.mark.shared_gateway

ADD = "add /v1 to the base address"
SLASH = "remove the slash at the end of the"


@pytest.mark.parametrize(
    ("path", "beginning", "hint"),
    [
        ("/v1/v1/messages", "/v1/v1/", "remove /v1 from the base address"),
        ("//v1/v1/messages/", "/v1/v1/", "remove /v1 from the base address"),
        ("/chat/completions", "/chat/completions", ADD),
        ("//chat/completions", "/chat/completions", ADD),
        ("/responses", "/responses", ADD),
        ("/models", "/models", ADD),
        ("/models/beta-5.4", "/models", ADD),
        ("/messages", "/messages", "add /v1 to the base address"),
        ("//v1/messages", "//", f"{SLASH} base address"),
        ("/v1//chat/completions", "//", f"{SLASH} base address"),
        ("/v1/responses/", "/v1/responses/", f"{SLASH} path"),
        (
            "/v1/messages/v1/messages",
            "/v1/messages/…",
            "remove /v1/messages from the base address",
        ),
        (
            "/v1/chat/completions/chat/completions",
            "/v1/chat/completions/…",
            "remove /chat/completions from the base address",
        ),
        ("/v1/responses/models", "/v1/responses/…", "remove /responses from the base address"),
        ("/api/v1/messages", "…/v1/", "remove what comes before /v1 from the base address"),
        ("/v1/nothing", None, None),
        ("/v1/messages", None, None),
        ("/v1/messages/batches", None, None),
        ("/favicon.ico", None, None),
        ("/", None, None),
    ],
)
def test_paths_of_a_wrong_base_address(path: str, beginning: str | None, hint: str | None) -> None:
    assert (base_address_hint(path) or (None, None)) == (beginning, hint)


@pytest.mark.parametrize("path", ["//v1/messages", "/v1/messages/", "/v1/v1/messages"])
async def test_every_method_gets_the_hint_and_is_counted(
    gateway: RunningGateway, path: str
) -> None:
    url = URL(f"{gateway.address}{path}", encoded=True)
    for method in ("POST", "GET", "HEAD"):
        async with gateway.http.request(
            method, url, json={} if method == "POST" else None
        ) as answer:
            assert answer.status == 404
            assert method == "HEAD" or "base address" in await answer.text() or path[-1] == "/"
            assert method == "HEAD" or "remove" in await answer.text()
    assert sum(gateway.daemon.runtime.bad_paths.values()) == 3


async def test_agents_may_begin_with_head(gateway: RunningGateway) -> None:
    for path in ("/", "/v1/messages", "/v1/anything"):
        async with gateway.http.head(path) as answer:
            assert answer.status == 200


def test_products_are_counted_separately_up_to_a_hundred() -> None:
    misdirected: Counter[tuple[str, str]] = Counter()
    for number in range(300):
        count_bad_path(misdirected, "/models", f"agent-{number}/1.{number}")
    count_bad_path(misdirected, "/models", "agent-7/9")
    assert len(misdirected) == 101
    assert misdirected["/models", "agent-7"] == 2
    assert misdirected["/models", "others"] == 200


@pytest.mark.parametrize(
    ("agent", "product"),
    [("", ""), ("Some Client (x)", "Some Client (x)"), ("a\x1b[1m/2", ""), ("x" * 500, "x" * 60)],
)
def test_the_recorded_part_of_a_user_agent(agent: str, product: str) -> None:
    misdirected: Counter[tuple[str, str]] = Counter()
    count_bad_path(misdirected, "/models", agent)
    assert dict(misdirected) == {("/models", product): 1}


async def test_a_gateway_counts_them(tmp_path, unused_tcp_port) -> None:
    gateway: RunningGateway
    async with run_gateway(tmp_path, channels(f"http://127.0.0.1:{unused_tcp_port}")) as gateway:
        for _ in range(2):
            answer = await gateway.post(
                Format.CHAT, path="/chat/completions", headers={"user-agent": "client/1.0"}
            )
            assert answer.status == 404
            message = orjson.loads(await answer.read())["error"]["message"]
            assert message.endswith("add /v1 to the base address")
        await gateway.get("/nothing")
        counted = gateway.daemon.runtime.bad_paths
        assert dict(counted) == {("/chat/completions", "client"): 2}
