"""What tests of the fault harness stand on. Independent of what is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.resilience.faults.upstream import FaultUpstream, fault_upstream


@pytest.fixture
async def upstream() -> AsyncIterator[FaultUpstream]:
    async with fault_upstream() as upstream:
        yield upstream
