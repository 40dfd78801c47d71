"""A gateway with a password, and browsers before it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.console.browsing import PASSWORD, Browser, browsing
from tests.house import House


@pytest.fixture
async def stranger(house: House) -> AsyncIterator[Browser]:
    """Somebody who knows the password but has not signed in."""
    await house.daemon.office.sessions.set_password(PASSWORD)
    async with browsing(house) as browser:
        yield browser


@pytest.fixture
async def browser(stranger: Browser) -> Browser:
    """Signed in."""
    answer = await stranger.sign_in()
    assert answer.status == 303, await answer.text()
    return stranger
