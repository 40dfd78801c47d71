"""Somebody who is signed in, before a gateway that nobody has asked anything yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.console.visiting import Visitor, visiting
from tests.house import House


@pytest.fixture
async def visitor(house: House) -> AsyncIterator[Visitor]:
    async with visiting(house) as visitor:
        yield visitor
