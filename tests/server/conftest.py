"""What tests of the server stand on beside the house of all tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from tests.house import House, channel, open_house
from tests.scripted import ScriptedUpstream
from tests.server.pairs import OpenBehind


@pytest.fixture
def behind(upstream: ScriptedUpstream, tmp_path: Path) -> OpenBehind:
    @asynccontextmanager
    async def open_behind(spoken: Format, **config: Any) -> AsyncIterator[House]:
        line = channel(spoken, upstream.address, lane="translated")
        async with open_house(tmp_path, [line | config.pop("line", {})], **config) as house:
            yield house

    return open_behind
