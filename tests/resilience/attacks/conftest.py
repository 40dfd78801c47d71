"""One gateway for all attacks, with 50 streams that others read through it all the time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.resilience.attacks.target import Target, max_stall, run_target

STREAMS = 50


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    async with run_target(tmp_path_factory.mktemp("attacks"), STREAMS) as target:
        yield target
        report = await target.measure("measure_all")
        print(f"\nall attacks: {report}")
        assert not report.cut, report
        assert report.added_p99 <= max_stall(), report
