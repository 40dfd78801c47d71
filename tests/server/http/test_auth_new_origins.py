"""Who used a key first is remembered, and who comes after it from elsewhere is noted once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.core.formats import Format
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

PROXY = {"trusted_proxies": ["127.0.0.1/32"]}


async def call(gateway: RunningGateway, key: str, address: str, agent: str) -> str | None:
    """What the row notes of it."""
    headers = {"x-forwarded-for": address, "user-agent": agent}
    answer = await gateway.post(Format.CHAT, key=key, headers=headers)
    assert answer.status == 200
    rows = await gateway.rows()
    return next(row.notes for row in rows if row.id == answer.headers["request-id"])


async def test_unknown_origins(
    upstream: ScriptedUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    lines = channels(upstream.address)
    caplog.set_level(logging.WARNING, "gateway.admission")
    async with run_gateway(tmp_path, lines, server=dict(PROXY)) as gateway:
        token, key = await gateway.operations.create_key("lab", "default")
        assert await call(gateway, key, "192.0.2.1", "tool/1.0") is None
        assert await call(gateway, key, "192.0.2.1", "tool/2.0") is None
        change = "address 192.0.2.2, first 192.0.2.1"
        assert await call(gateway, key, "192.0.2.2", "tool/2.0") == f"new: {change}"
        assert await call(gateway, key, "192.0.2.2", "tool/2.0") is None
        other = "client other, first tool"
        assert await call(gateway, key, "192.0.2.1", "other/1") == f"new: {other}"
        assert await call(gateway, key, "192.0.2.1", "other/2") is None
    assert [record.getMessage() for record in caplog.records] == [
        f"key lab ({token.id}) is used by a new client: {change}",
        f"key lab ({token.id}) is used by a new client: {other}",
    ]
    async with run_gateway(tmp_path, lines, server=dict(PROXY)) as gateway:
        known = await gateway.operations.get_key(token.id)
        assert (known.first_address, known.first_agent) == ("192.0.2.1", "tool")
        assert known.changed == other
        assert known.changed_at is not None
        assert known.first_used_at is not None
        assert known.first_used_at < known.changed_at
        assert await call(gateway, key, "192.0.2.1", "tool/3.0") is None
        assert await call(gateway, key, "192.0.2.1", "other/3") is None
        third = "address 192.0.2.3, first 192.0.2.1"
        assert await call(gateway, key, "192.0.2.3", "tool/3.0") == f"new: {third}"


async def test_each_key_has_its_own_origins(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    _, key = await gateway.operations.create_key("second", "default")
    assert await call(gateway, gateway.key, "192.0.2.1", "tool/1") is None
    assert await call(gateway, key, "192.0.2.1", "other/1") is None


async def test_several_warnings_are_joined(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    assert await call(gateway, gateway.key, "", "tool/1") is None
    await gateway.operations.rotate_key(gateway.token.id, 60_000_000)
    noted = await call(gateway, gateway.key, "", "other/1")
    assert noted == "the key from before its rotation; new: client other, first tool"
