"""Clients with a wrong base URL get a hint and are counted, in a bounded number of entries."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from gateway.core.formats import Format
from gateway.server.middleware import base_url_hint, count_bad_path
from tests.support.gateway import RunningGateway, channels, run_gateway


@pytest.mark.parametrize(
    ("path", "beginning"),
    [
        ("/v1/v1/messages", "/v1/v1/"),
        ("/chat/completions", "/chat/completions"),
        ("/responses", "/responses"),
        ("/models", "/models"),
        ("/models/beta-5.4", "/models"),
        ("/messages", "/messages"),
        ("/v1/nothing", None),
        ("/favicon.ico", None),
    ],
)
def test_paths_of_a_wrong_base_url(path: str, beginning: str | None) -> None:
    found = base_url_hint(path)
    assert (None if found is None else found[0]) == beginning


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
