"""Every fixture's events, encoded and decoded again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson

from gateway.core.events import End, Fail, StopReason
from gateway.core.parts import Part, Refusal, Text, Thinking, ToolCall
from gateway.core.reply import collect_reply
from gateway.errors import TooManyRequests
from gateway.wire.responses.decode import ResponsesDecoder
from tests.support.cases import in_one_test
from tests.support.fixture_json import from_json
from tests.support.formats import responses as strict
from tests.support.grammar import assert_grammar
from tests.support.paths import FIXTURES
from tests.wire.responses.encoding import USAGE, new_encoder
from tests.wire.stream_cases import decode

EVENT_FILES = [
    *sorted(FIXTURES.glob("streams/*/events*.json")),
    *sorted(FIXTURES.glob("quirks/*/*/events.json")),
]


@in_one_test("path", EVENT_FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_encoded_events_decode_to_the_same_reply(path: Path) -> None:
    events = from_json(orjson.loads(path.read_bytes()))
    encoder = new_encoder()
    *others, last = events
    raw = b"".join(map(encoder.encode, others))
    if isinstance(last, Fail):
        raw += encoder.encode_error(TooManyRequests())
        strict.check(raw, errored=True)
    else:
        raw += encoder.encode(End(last.stop, last.usage or USAGE))
        strict.check(raw)
    again = decode(ResponsesDecoder(), raw)
    assert_grammar(again)
    if isinstance(last, Fail):
        assert isinstance(again[-1], Fail)
        return
    reply = collect_reply(again)
    assert _reply_texts(reply.parts) == _reply_texts(collect_reply(events).parts)
    assert reply.stop is _DECODED_STOPS.get(last.stop, last.stop)


_DECODED_STOPS = {
    StopReason.CONTEXT_WINDOW: StopReason.MAX_TOKENS,
    StopReason.STOP_SEQUENCE: StopReason.END_TURN,
    StopReason.PAUSE: StopReason.MAX_TOKENS,
    StopReason.COMPACTION: StopReason.MAX_TOKENS,
    StopReason.INTERRUPTED: StopReason.MAX_TOKENS,
}


def _reply_texts(parts: Iterable[Part]) -> list[tuple[str, str]]:
    """What no format may drop: texts, joined, and calls."""
    texts: list[tuple[str, str]] = []
    for part in parts:
        match part:
            case Text(text) if texts and texts[-1][0] == "text":
                texts[-1] = ("text", texts[-1][1] + text)
            case Text(text):
                texts.append(("text", text))
            case Refusal(text):
                texts.append(("refusal", text))
            case Thinking(text):
                texts.append(("thinking", text))
            case ToolCall(_, name, arguments):
                texts.append((f"call of {name}", arguments or "{}"))
            case _:
                texts.append(("else", ""))
    return [(kind, text) for kind, text in texts if kind != "else"]
