"""One gateway for all loads, and an operator who is signed in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.resilience.fairness.others import Place, run_place


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with run_place(tmp_path_factory.mktemp("fairness")) as place:
        yield place
