"""A running gateway with everything that a test needs to talk to it and to look behind it.

It must not know what is tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession

from gateway.admin.operations import AdminOperations
from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.daemon import Daemon, run_daemon
from gateway.store.records import ExchangeState, RequestRow, Token
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.support.databases import database_options
from tests.support.ledger_template import copy_ledger

ALPHA = "alpha-sonnet-4-6"
BETA = "beta-5.4"
UPSTREAM_MODEL = "upstream-model"
UPSTREAM_KEY = "upstream-secret-4471"
ACCOUNT = "account-of-the-house"

PATHS = {
    Format.CHAT: "/v1/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/v1/responses",
}


def request_body(client_format: Format, **fields: Any) -> dict[str, Any]:
    """A small request body of a format."""
    turns = [{"role": "user", "content": "Hello"}]
    match client_format:
        case Format.CHAT:
            body: dict[str, Any] = {"model": BETA, "messages": turns}
        case Format.MESSAGES:
            body = {"model": ALPHA, "max_tokens": 100, "messages": turns}
        case Format.RESPONSES:
            body = {"model": BETA, "input": "Hello"}
    return body | fields


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """`key` belongs to `token`, whose group reaches every model. Rows before `first_id` belong to
    other tests."""

    daemon: Daemon
    token: Token
    key: str
    http: ClientSession
    first_id: str = ""

    @property
    def address(self) -> str:
        return self.daemon.address

    @property
    def operations(self) -> AdminOperations:
        return self.daemon.operations

    async def post(
        self,
        client_format: Format,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        key: str | None = None,
        path: str | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> ClientResponse:
        """The answer of a format's endpoint to a body, or to `prompt` with some fields, read."""
        if body is None:
            body = request_body(client_format, **fields)
        answer = await self.http.post(
            path or PATHS[client_format],
            data=BytesIO(body if isinstance(body, bytes) else orjson.dumps(body)),
            headers={
                "authorization": f"Bearer {key or self.key}",
                "content-type": "application/json",
                "anthropic-version": "2023-06-01",
                **(headers or {}),
            },
        )
        await answer.read()
        return answer

    async def get(self, path: str, key: str | None = None, **headers: str) -> ClientResponse:
        bearer = {"authorization": f"Bearer {key or self.key}"}
        answer = await self.http.get(path, headers=bearer | headers)
        await answer.read()
        return answer

    async def rows(self, count: int = 1) -> list[RequestRow]:
        """The ledger's newest rows, oldest first, once `count` of them are settled."""
        async with asyncio.timeout(15):
            while True:
                newest = (await self.operations.list_requests(limit=100)).rows
                rows = [row for row in newest if row.id >= self.first_id]
                settled = [row for row in rows if row.state is not ExchangeState.RUNNING]
                if len(settled) >= count and len(rows) == len(settled):
                    return rows[::-1]
                await asyncio.sleep(0.005)

    async def row(self) -> RequestRow:
        """The one row of a test's one exchange."""
        (row,) = await self.rows()
        return row

    async def key_for_models(self, *patterns: str) -> str:
        """A key whose group reaches only what the patterns name."""
        name = f"group-{len(self.operations.list_groups())}"
        await self.operations.create_group(name, patterns)
        _, key = await self.operations.create_key(name, name)
        return key


def channel(upstream_format: Format, address: str, **changes: Any) -> dict[str, Any]:
    """The configuration of a channel that has both models, under the upstream's own name."""
    return {
        "name": f"{upstream_format}-main",
        "format": upstream_format.value,
        "base_url": address if upstream_format is Format.MESSAGES else f"{address}/v1",
        "models": {ALPHA: UPSTREAM_MODEL, BETA: UPSTREAM_MODEL},
        "accounts": [{"name": ACCOUNT, "key": UPSTREAM_KEY}],
    } | changes


def channels(address: str, **changes: Any) -> list[dict[str, Any]]:
    """One channel for each format."""
    return [channel(format, address, **changes) for format in Format]


def gateway_config(
    state_dir: Path, channels: list[dict[str, Any]], **config: Any
) -> dict[str, Any]:
    """A configuration for tests. `config` is the rest of the file."""
    server = {"port": 0, "drain_timeout": 1} | config.pop("server", {})
    fields = {"state_dir": str(state_dir), "channels": channels, "server": server}
    return fields | database_options(state_dir) | config


@asynccontextmanager
async def run_gateway(
    state_dir: Path, channels: list[dict[str, Any]], **config: Any
) -> AsyncIterator[RunningGateway]:
    """A gateway that serves in the test's own loop. `config` is the rest of the file."""
    text = orjson.dumps(gateway_config(state_dir, channels, **config)).decode()
    await copy_ledger(state_dir / DATABASE_NAME)
    async with run_daemon(parse_config(text)) as daemon:
        token, key = await daemon.operations.create_key("tests", "default")
        async with ClientSession(daemon.address) as http:
            yield RunningGateway(daemon, token, key, http)
