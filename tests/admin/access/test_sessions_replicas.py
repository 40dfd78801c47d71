"""The console's sessions at two replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.admin.access.sessions import IDLE_TIMEOUT
from gateway.core.formats import Format
from tests.support.gateway import channel
from tests.support.replicas import run_replicas

pytestmark = pytest.mark.fleet


async def test_a_session_is_known_at_once_and_does_not_idle_elsewhere(tmp_path: Path) -> None:
    lines = [channel(Format.CHAT, "http://127.0.0.1:9")]
    async with asyncio.timeout(60), run_replicas(tmp_path, 2, lines) as gateways:
        a, b = (each.daemon.console.access for each in gateways)
        await a.admins.set_password("a-long-password-1")
        async with asyncio.timeout(3):
            while not b.admins.all():
                await asyncio.sleep(0.02)
        id_ = await a.sessions.sign_in("admin", "a-long-password-1", "127.0.0.1", "test")
        await b.sessions.refresh(id_)
        session = b.sessions.find(id_)
        assert session is not None
        session.seen_at -= IDLE_TIMEOUT  # it was used at the other replica alone
        assert b.sessions.find(id_) is None
        await b.sessions.sign_in("admin", "a-long-password-1", "127.0.0.1", "test")
        assert a.sessions.find(id_) is not None  # not ended by the other sign-in
        await b.sessions.refresh(id_)
        assert b.sessions.find(id_) is not None
