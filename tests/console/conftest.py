"""A gateway with a password, and browsers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.console.browser import PASSWORD, Browser, open_browser
from tests.support.gateway import RunningGateway


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password is hashed in 2 ms instead of 60."""
    monkeypatch.setattr("gateway.admin.access.passwords._SCRYPT_N", 2**10)


@pytest.fixture
async def anonymous(gateway: RunningGateway) -> AsyncIterator[Browser]:
    """A browser without a session; the password is set."""
    await gateway.daemon.console.access.admins.set_password(PASSWORD)
    async with open_browser(gateway) as browser:
        yield browser


@pytest.fixture
async def browser(anonymous: Browser) -> Browser:
    """Signed in."""
    answer = await anonymous.sign_in()
    assert answer.status == 303, await answer.text()
    return anonymous
