"""A receiver of webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.alerts.receiver import Receiver, run_receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with run_receiver() as receiver:
        yield receiver
