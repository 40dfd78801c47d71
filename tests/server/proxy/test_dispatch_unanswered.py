"""Requests without a response, or with that of another one, on connections that are reused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.store.records import RequestRow
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.tcp_server import listening
from tests.support.upstream import fixture_reply

DIES_AFTER = 0.1
"""Seconds within which a reused connection may be one that the upstream was closing."""


@dataclass(slots=True)
class Upstream:
    """Where `dies`, it serves the second request of each connection and closes it. Where
    `duplicates`, it sends a second copy of every third reply, but only once the next request on the
    connection has come, so that nobody can tell it from the reply to that."""

    dies: bool = False
    duplicates: bool = False
    served: int = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nth, late = 0, b""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = orjson.loads(await reader.readexactly(length))
            nth, self.served = nth + 1, self.served + 1
            if self.dies and nth == 2:
                await asyncio.sleep(DIES_AFTER)
                return
            reply = orjson.loads(fixture_reply("chat").body)
            reply["choices"][0]["message"]["content"] = body["messages"][-1]["content"]
            data = orjson.dumps(reply)
            data = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                % len(data)
            ) + data
            writer.write(late + data)
            late = data if self.duplicates and self.served % 3 == 0 else b""


@asynccontextmanager
async def running(
    folder: Path, upstream: Upstream, **settings: Any
) -> AsyncIterator[RunningGateway]:
    async with listening(upstream.talk) as port:
        settings["affinity"] = False
        channels = [channel(Format.CHAT, f"http://127.0.0.1:{port}", **settings)]
        async with run_gateway(folder, channels) as gateway:
            yield gateway


async def ask(gateway: RunningGateway, text: str, key: str | None = None) -> tuple[int, str]:
    """Status and text of the reply."""
    messages = [{"role": "user", "content": text}]
    answer = await gateway.post(Format.CHAT, key=key, messages=messages)
    body = await answer.json()
    return answer.status, body["choices"][0]["message"]["content"] if answer.ok else ""


async def test_a_request_that_is_sent_again_is_another_attempt(tmp_path: Path) -> None:
    """Every request that the upstream has served is in the log; connections that break so are not
    reused for a time."""
    upstream = Upstream(dies=True)
    async with running(tmp_path, upstream) as gateway:
        for number in range(20):
            assert await ask(gateway, f"text {number}") == (200, f"text {number}")
        rows: list[RequestRow] = await gateway.rows(20)
        assert sum(row.attempts for row in rows) == upstream.served == 21
        (row,) = [row for row in rows if row.attempts == 2]
        attempts = await gateway.operations.list_attempts(row.id)
        assert [attempt.verdict for attempt in attempts] == ["reused connection", "ok"]
        assert [attempt.next for attempt in attempts] == ["same account", None]
        metrics = await (await gateway.get("/metrics")).text()
    cause = 'cause="no response on a reused connection"'
    assert f"gateway_upstream_connections_distrusted_total{{{cause}}} 1" in metrics


async def test_a_request_is_sent_once_where_that_is_wanted(tmp_path: Path) -> None:
    upstream = Upstream(dies=True)
    async with running(tmp_path, upstream, retry_unanswered=False) as gateway:
        assert [(await ask(gateway, "text"))[0] for _ in range(3)] == [200, 502, 200]
        rows = await gateway.rows(3)
        assert [row.attempts for row in rows] == [1, 1, 1]
        assert upstream.served == 3


@pytest.mark.parametrize("reuse", ["within_key", "never"])
async def test_a_late_second_reply(tmp_path: Path, reuse: str) -> None:
    """It never reaches another key, nor anybody where no connection is reused."""
    upstream = Upstream(duplicates=True)
    async with running(tmp_path, upstream, reuse=reuse) as gateway:
        _, other = await gateway.operations.create_key("other", "default")
        wrong = 0
        for number in range(12):
            for key in (gateway.key, other):
                owner = "own" if key == gateway.key else "other"
                status, text = await ask(gateway, f"{owner} {number}", key)
                assert status == 200
                assert text.startswith(owner), "the reply of another key"
                wrong += text != f"{owner} {number}"
    assert bool(wrong) == (reuse == "within_key")
