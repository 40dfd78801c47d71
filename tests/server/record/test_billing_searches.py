"""Searches that a responses upstream runs are counted and billed, whether or not it counts them."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.store.records import RequestRow
from tests.support.gateway import channel, run_gateway
from tests.support.upstream import Response, ScriptedUpstream, event_stream, json_response

MONEY = {"web_searches": 10_000}
PRICE = 10 * 1_000_000
"""Of a search, in micro-units."""
USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}

each_lane = pytest.mark.parametrize("client", [Format.RESPONSES, Format.MESSAGES, Format.CHAT])
each_way = pytest.mark.parametrize("streamed", [False, True])


def searched(action: str | None = "search", status: str = "completed") -> dict[str, Any]:
    fields: dict[str, Any] = {} if action is None else {"action": {"type": action, "query": "q"}}
    return {"type": "web_search_call", "status": status, **fields}


def reply(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    text = {"type": "output_text", "text": "Found.", "annotations": []}
    items = [*calls, {"type": "message", "role": "assistant", "content": [text]}]
    output = [{"id": f"item_{number}", **item} for number, item in enumerate(items)]
    response = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
    return response | {"output": output, "usage": USAGE} | fields


def stream(response: dict[str, Any], *, listed: bool = True) -> Response:
    """With each item as it starts and as it ends and, if `listed`, once more at the end."""
    output, numbers = response["output"], count()
    events = [("response.created", {"response": response | {"output": [], "usage": None}})]
    for index, item in enumerate(output):
        started = item | {"status": "in_progress"}
        events += [
            ("response.output_item.added", {"output_index": index, "item": started}),
            ("response.output_item.done", {"output_index": index, "item": item}),
        ]
    last = response if listed else response | {"output": []}
    events.append(("response.completed", {"response": last}))
    frames = [{"type": kind, "sequence_number": next(numbers), **data} for kind, data in events]
    return event_stream(b"".join(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames))


async def rows_of(
    upstream: ScriptedUpstream,
    state: Path,
    client: Format,
    *responses: dict[str, Any],
    streamed: bool = False,
    listed: bool = True,
) -> list[RequestRow]:
    lines = [channel(Format.RESPONSES, upstream.address)]
    async with run_gateway(state, lines, money=MONEY) as gateway:
        for each in responses:
            answer = stream(each, listed=listed) if streamed else json_response(each)
            upstream.respond_with(answer)
            received = await gateway.post(client, stream=streamed)
            assert received.status == 200, await received.read()
            await received.read()
        return await gateway.rows(len(responses))


@each_way
@each_lane
async def test_items_are_counted(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format, streamed: bool
) -> None:
    replies = reply(), reply(searched(), searched(None))
    plain, row = await rows_of(upstream, tmp_path, client, *replies, streamed=streamed)
    assert row.lane == ("native" if client is Format.RESPONSES else "translated")
    assert (row.usage_source, plain.web_searches, row.web_searches) == ("upstream", 0, 2)
    assert row.cost_micro - plain.cost_micro == 2 * PRICE


@each_lane
async def test_items_that_only_the_stream_has(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format
) -> None:
    calls = reply(searched(), searched())
    (row,) = await rows_of(upstream, tmp_path, client, calls, streamed=True, listed=False)
    assert row.web_searches == 2


@each_way
@each_lane
async def test_the_upstreams_own_count_is_final(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format, streamed: bool
) -> None:
    counted = reply(searched(), searched(), tool_usage={"web_search": {"num_requests": 1}})
    (row,) = await rows_of(upstream, tmp_path, client, counted, streamed=streamed)
    assert row.web_searches == 1


@each_way
@each_lane
async def test_what_is_no_search(
    upstream: ScriptedUpstream, tmp_path: Path, client: Format, streamed: bool
) -> None:
    """Pages that the model opens or looks through, and searches that failed."""
    calls = [searched("open_page"), searched("find_in_page"), searched(status="failed")]
    response = reply(*calls, searched())
    (row,) = await rows_of(upstream, tmp_path, client, response, streamed=streamed)
    assert row.web_searches == 1
