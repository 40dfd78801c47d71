"""A ledger that cannot be written delays a reply a little, and takes nothing from it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.server.http import client_stream
from gateway.store.records import ExchangeState
from tests.resilience.chaos.client import headers, request_fields
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.support.formats.endings import is_complete
from tests.support.gateway import PATHS, channels, run_gateway
from tests.support.upstream import ReceivedRequest, Response, json_response, scripted_upstream

WINDOW = 0.1
"""Seconds between signs of life: a window ends while the first byte waits for its row."""


async def begin_late(call: ReceivedRequest) -> Response | None:
    if not call.streamed:
        return json_response(complete_body(call.format))
    text = sample_stream(call.format)
    await call.answer.begin_stream()
    await asyncio.sleep(WINDOW / 2)
    await call.answer.say(text.opening)
    await asyncio.sleep(3 * WINDOW)
    await call.answer.say(text.word + text.ending)
    await call.answer.end()
    return None


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("format", Format)
async def test_no_reply_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, stream: bool
) -> None:
    monkeypatch.setattr(client_stream, "PING_INTERVAL", WINDOW)
    async with (
        scripted_upstream(begin_late) as model,
        run_gateway(tmp_path, channels(model.address)) as gateway,
    ):
        with closing(sqlite3.connect(tmp_path / "gateway.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            answer = await gateway.http.post(
                PATHS[format],
                json=request_fields(format, "late", stream=stream),
                headers=headers(gateway.key, "late"),
            )
            body = await answer.read()
        assert answer.status == 200
        if stream:
            assert is_complete(format, body)
            text = sample_stream(format)
            everything = text.opening + text.word + text.ending
            assert body.count(b'" word"') == everything.count(b'" word"')
        row = (await gateway.rows())[0]
        assert (row.state, row.status) == (ExchangeState.OK, 200)
        assert row.first_event_us and row.first_event_us <= (row.total_us or 0)
