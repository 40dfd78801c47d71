"""What operators change about a key holds on every replica within a second."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.fleet import run_fleet
from tests.support.fleet_load import Load, LoadProcess

WITHIN = 1.0
"""Seconds."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("action", ["revoke", "disable"])
@pytest.mark.timeout(120)
async def test_a_key_is_refused_everywhere_within_a_second(tmp_path: Path, action: str) -> None:
    async with run_fleet(tmp_path, 4) as fleet:
        made = await fleet.replicas[0].command("key", "mint", "--name", "short-lived")
        load = Load(fleet.addresses, [made["key"]], "key", 8, rate=80)
        running = LoadProcess(load, tmp_path)
        await running.under_way(3.5)
        await fleet.replicas[1].command("key", action, made["id"])
        done_at = time.time()
        await asyncio.sleep(WITHIN + 2)
        running.end()
        answers = await running.answers()
        before = [answer for answer in answers.all if answer.began < done_at - 3]
        after = [answer for answer in answers.all if answer.began > done_at + WITHIN]
        assert {answer.status for answer in before} == {200}
        assert len(after) > 40
        assert {answer.status for answer in after} <= {401, 403}, answers.codes()
        assert {answer.target for answer in after} == {0, 1, 2, 3}
