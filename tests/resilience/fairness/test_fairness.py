"""Whatever one key does, others hardly wait for it."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.resilience.attacks.target import MAX_STALL, max_stall
from tests.resilience.fairness.loads import LOADS
from tests.resilience.fairness.others import Place

pytestmark = pytest.mark.asyncio(loop_scope="package")

MAX_WAIT: Final = 0.25
"""Seconds beyond the time alone, on a machine as fast as `max_stall` says."""
_WARM_UP: Final = 0.7


@pytest.mark.one_in(20)
@pytest.mark.parametrize("load", LOADS)
async def test_others_hardly_wait(place: Place, load: str) -> None:
    alone = await place.measure()
    first = await place.load(load)
    try:
        await asyncio.sleep(_WARM_UP)
        beside = await place.measure()
    finally:
        statuses = await place.stop()
    added = {kind: seconds - alone[kind] for kind, seconds in beside.items()}
    shown = {kind: f"{seconds * 1000:+.0f} ms" for kind, seconds in added.items()}
    print(f"\n{load}: {shown}, answers {statuses}")
    assert max(added.values()) <= MAX_WAIT * max_stall() / MAX_STALL, shown
    expected = {LOADS[load].status} - {None}
    assert set(first) == expected, first
    assert set(statuses) <= expected | {"429"}, statuses
