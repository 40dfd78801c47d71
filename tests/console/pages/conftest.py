"""A signed-in user of a gateway without requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.console.visitor import Visitor, signed_in_visitor
from tests.support.gateway import RunningGateway


@pytest.fixture
async def visitor(gateway: RunningGateway) -> AsyncIterator[Visitor]:
    async with signed_in_visitor(gateway) as visitor:
        yield visitor
