"""Fixtures of the server tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from tests.server.format_pairs import OpenGateway
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.upstream import ScriptedUpstream


@pytest.fixture
def behind(upstream: ScriptedUpstream, tmp_path: Path) -> OpenGateway:
    @asynccontextmanager
    async def open_behind(format: Format, **config: Any) -> AsyncIterator[RunningGateway]:
        line = channel(format, upstream.address, lane="translated")
        async with run_gateway(tmp_path, [line | config.pop("line", {})], **config) as gateway:
            yield gateway

    return open_behind
