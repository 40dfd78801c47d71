"""A line to an upstream that listens at some address, and one request over it.

Independent of what is tested.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from gateway.config.load import parse_config
from gateway.config.schema import Config
from gateway.core.formats import Format, Lane
from gateway.core.target import Target
from gateway.routing.router import Candidate
from gateway.upstream.client import UpstreamClient
from gateway.upstream.response import AttemptFailed
from tests.support.gateway import ACCOUNT, BETA, UPSTREAM_MODEL, channel

CANDIDATE = Candidate(
    "chat-main", ACCOUNT, Format.CHAT, Lane.NATIVE, BETA, Target(model=UPSTREAM_MODEL)
)
LIMIT = 2**20


def config_for(address: str, format: Format = Format.CHAT, **fields: Any) -> Config:
    lines = [channel(format, address, **fields)]
    return parse_config(orjson.dumps({"channels": lines}).decode())


@asynccontextmanager
async def open_client(
    address: str, format: Format = Format.CHAT, **fields: Any
) -> AsyncIterator[UpstreamClient]:
    line = UpstreamClient(config_for(address, format, **fields))
    try:
        yield line
    finally:
        await line.close()


async def send(line: UpstreamClient, **crossing: str) -> bytes:
    answer = await line.send(CANDIDATE, b'{"n":1}', crossing, "")
    async with answer:
        return await answer.read_body(LIMIT)


async def failure_of(request: Awaitable[Any]) -> Any:
    with pytest.raises(AttemptFailed) as failed:
        await request
    return failed.value.failure
