"""One gateway for all attacks, with 50 streams that others read through it all the time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.resilience.attacks.target import MIB, Report, Target, run_target

STREAMS = 50
MAX_STALL = 0.1
"""Seconds by which an attack may delay any event of another stream, and any probe."""
MAX_RSS = 600 * MIB


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def running_target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    async with run_target(tmp_path_factory.mktemp("attacks"), STREAMS) as target:
        yield target


@pytest_asyncio.fixture(loop_scope="package")
async def target(
    running_target: Target, request: pytest.FixtureRequest, record_property: object
) -> AsyncIterator[Target]:
    """Fails the test where others have suffered from what it did."""
    await running_target.measure()
    yield running_target
    report = await running_target.measure()
    print(f"\n{request.node.name}: {report}")
    assert_unharmed(report)


def assert_unharmed(report: Report) -> None:
    assert not report.cut, report
    assert report.stall <= MAX_STALL, report
    assert report.peak_rss <= MAX_RSS, report
