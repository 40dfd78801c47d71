"""What is wrong now is on every page, with its time and the place that shows more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from gateway.console.notices import EXPIRY_DAYS, MOST
from gateway.core.formats import Format
from gateway.store.records import DAY_US
from gateway.store.tokens import expiring_tokens
from tests.console.hostile_text import is_harmless
from tests.console.visitor import Visitor, signed_in_visitor
from tests.support.gateway import RunningGateway
from tests.support.upstream import ScriptedUpstream, json_response

PAGES = ("/console", "/console/logs", "/console/connect", "/console/tokens")


@pytest.fixture
async def visitor(gateway: RunningGateway) -> AsyncIterator[Visitor]:
    async with signed_in_visitor(gateway) as visitor:
        yield visitor


async def test_nothing_is_wrong(visitor: Visitor) -> None:
    for path in PAGES:
        assert 'class="now"' not in (await visitor.get(path)).html


async def test_since_when_a_channel_fails(
    gateway: RunningGateway, visitor: Visitor, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({"error": {"message": "wrong key"}}, 401))
    assert (await gateway.post(Format.CHAT)).status == 502
    assert "1 of 1 accounts unhealthy. since" in (await visitor.get("/console/tokens")).text
    page = await visitor.get("/console/channels")
    assert re.search(r"auth failed since \d{4}-", page.text)


async def test_a_sick_channel_is_on_every_page(visitor: Visitor) -> None:
    await visitor.post("/console/channels/chat-main/account-for-tests/disable")
    for path in PAGES:
        page = await visitor.get(path)
        assert "Channel chat-main: 1 of 1 accounts unhealthy. Show" in page.text
    page = await visitor.get("/console/channels")
    assert "1 of 1 accounts unhealthy." in page.text
    assert "unhealthy. Show" not in page.text  # it is this page


async def test_keys_that_expire_soon(gateway: RunningGateway, visitor: Visitor) -> None:
    now = gateway.daemon.runtime.now()
    for number in range(5):
        at = now + (number + 1) * DAY_US
        await gateway.operations.create_key(f"<b>{number}", "default", expires_at=at)
    later = now + (EXPIRY_DAYS + 2) * DAY_US
    await gateway.operations.create_key("later", "default", expires_at=later)
    async with asyncio.timeout(5):  # what is stored is read once a second
        while "expire" not in (page := await visitor.get("/console/logs")).text:
            await asyncio.sleep(0.1)
    assert "Keys <b>0, <b>1, <b>2 and 2 more: expire within 7 days." in page.text
    assert is_harmless(page.html)
    names, count = await expiring_tokens(gateway.operations.database, now, now + DAY_US, 3)
    assert (names, count) == ([], 0)


async def test_there_are_few_at_once(
    gateway: RunningGateway, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.rendering.MOST", 0)
    await visitor.post("/console/channels/chat-main/account-for-tests/disable")
    assert 'class="now"' not in (await visitor.get("/console/logs")).html
    assert MOST > 0
