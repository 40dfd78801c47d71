"""20 requests with 20 MB of images each are in flight, and other streams are not delayed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from gateway.core.formats import Format
from tests.resilience.attacks.target import (
    ATTACKER,
    HOSTILE,
    MIB,
    CommandProcess,
    Target,
    command_process,
    run_target,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMS: Final = 50
REQUESTS: Final = 20
MAX_ADDED_P99: Final = 0.03
"""Seconds beyond what streams without the gateway see."""
MAX_RSS: Final = 800 * MIB
"""The requests have 540 MiB."""
WAITED_SHARE: Final = 0.1
"""Of the time for which the gateway waited for a processor: on a busy machine events wait, too."""
_ATTEMPTS: Final = 5

Load = tuple[Target, CommandProcess]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def load(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Load]:
    folder = tmp_path_factory.mktemp("images")
    async with (
        command_process("tests.resilience.attacks.large_images") as clients,
        run_target(folder, STREAMS, clients.upstream, max_bodies="2GiB") as target,
    ):
        yield target, clients


@pytest.mark.one_in(9)
@pytest.mark.parametrize("upstream_format", list(Format))
@pytest.mark.parametrize("client_format", list(Format))
async def test_large_images_at_once(
    load: Load, client_format: Format, upstream_format: Format
) -> None:
    target, clients = load
    model = HOSTILE.format(upstream_format)
    small = upstream_format is Format.MESSAGES
    await clients.command("prepare", client_format, model, REQUESTS, small, seconds=60)
    for attempt in range(1, _ATTEMPTS + 1):
        await target.measure()
        sent = await clients.command("send", target.address, target.key, ATTACKER, seconds=60)
        report = await target.measure()
        print(f"\n{client_format} to {upstream_format}: {report}, {sent['seconds']:.1f} s")
        assert sent["statuses"] == [200] * REQUESTS
        assert sent["bodies"] == REQUESTS
        assert not report.cut, report
        assert report.peak_rss <= MAX_RSS, report
        if report.added_p99 <= MAX_ADDED_P99 + WAITED_SHARE * report.waited:
            return
        assert attempt < _ATTEMPTS, report
