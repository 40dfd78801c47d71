"""Shared by the tests of the responses encoder: events of complete parts, and their frames, which
are checked against the strict grammar.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from gateway.core.events import Begin, Close, Delta, End, Event, Open, Signature, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import Citation, Part, ProviderData
from gateway.core.prompt import Prompt
from gateway.wire.codec import ReplyMetadata
from gateway.wire.responses.encode import ResponsesEncoder
from tests.support.formats import responses as strict
from tests.wire.stream_cases import frames_of, prompt

PROMPT = prompt(Format.RESPONSES, "shown")
METADATA = ReplyMetadata(reply_id="a1", created=1_700_000_000, origin="here")
USAGE = Usage(input_tokens=25, output_tokens=40, reasoning_tokens=7)
SIGNATURE = ProviderData(Format.RESPONSES, {"id": "rs_9", "encrypted_content": "ZW5j"})


Piece = str | Citation | Signature


def new_encoder(request: Prompt = PROMPT) -> ResponsesEncoder:
    return ResponsesEncoder(request, METADATA)


def parts_of(*parts: tuple[Part, *tuple[Piece, ...]]) -> list[Event]:
    """The events of consecutive complete parts."""
    events: list[Event] = [Begin("", "")]
    for index, (part, *pieces) in enumerate(parts):
        events += [Open(index, part), *(Delta(index, piece) for piece in pieces), Close(index)]
    return events


def encode_events(
    events: Iterable[Event], stop: StopReason = StopReason.END_TURN, request: Prompt = PROMPT
) -> tuple[bytes, ResponsesEncoder]:
    encoder = new_encoder(request)
    raw = b"".join([*map(encoder.encode, events), encoder.encode(End(stop, USAGE))])
    strict.check(raw)
    return raw, encoder


def event_data(raw: bytes) -> list[dict[str, Any]]:
    """The events' data without sequence numbers."""
    events = []
    for frame in frames_of([raw]):
        assert frame.data is not None
        data = orjson.loads(frame.data)
        assert data["type"] == frame.name.decode()
        del data["sequence_number"]
        events.append(data | {"type": data["type"].removeprefix("response.")})
    return events


def output(
    *parts: tuple[Part, *tuple[Piece, ...]],
    stop: StopReason = StopReason.END_TURN,
    request: Prompt = PROMPT,
) -> list[dict[str, Any]]:
    _, encoder = encode_events(parts_of(*parts), stop, request)
    assert encoder.dropped == set()
    items: list[dict[str, Any]] = encoder.response["output"]
    return items


def message(*content: dict[str, Any], id: str = "msg_gw_a1_0", **more: Any) -> dict[str, Any]:
    head = {"id": id, "type": "message", "role": "assistant", "status": "completed"}
    return head | {"content": list(content)} | more


def text_part(text: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "output_text",
        "text": text,
        "annotations": list(annotations),
        "logprobs": [],
    }
