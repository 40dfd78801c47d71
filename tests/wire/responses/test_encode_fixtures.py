"""Every fixture's events, said to a responses client and read back."""

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
from tests.support.grammar import assert_grammar
from tests.support.paths import FIXTURES
from tests.wire.responses.encoding import USAGE, encoder
from tests.wire.stream_cases import decode
from tests.wire.strict import responses as strict

HINGES = [
    *sorted(FIXTURES.glob("streams/*/events*.json")),
    *sorted(FIXTURES.glob("quirks/*/*/events.json")),
]


@in_one_test("path", HINGES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_encoder_hinges_is_said_as_clients_want_it(path: Path) -> None:
    events = from_json(orjson.loads(path.read_bytes()))
    speaker = encoder()
    *others, last = events
    raw = b"".join(map(speaker.encode, others))
    if isinstance(last, Fail):
        raw += speaker.encode_error(TooManyRequests())
        strict.check(raw, errored=True)
    else:
        raw += speaker.encode(End(last.stop, last.usage or USAGE))
        strict.check(raw)
    again = decode(ResponsesDecoder(), raw)
    assert_grammar(again)
    if isinstance(last, Fail):
        assert isinstance(again[-1], Fail)
        return
    reply = collect_reply(again)
    assert _spoken(reply.parts) == _spoken(collect_reply(events).parts)
    assert reply.stop is _SAID.get(last.stop, last.stop)


_SAID = {
    StopReason.CONTEXT_WINDOW: StopReason.MAX_TOKENS,
    StopReason.STOP_SEQUENCE: StopReason.END_TURN,
    StopReason.PAUSE: StopReason.END_TURN,
    StopReason.COMPACTION: StopReason.END_TURN,
}


def _spoken(parts: Iterable[Part]) -> list[tuple[str, str]]:
    """What no format may lose: texts, neighbours in one, and calls."""
    said: list[tuple[str, str]] = []
    for part in parts:
        match part:
            case Text(text) if said and said[-1][0] == "text":
                said[-1] = ("text", said[-1][1] + text)
            case Text(text):
                said.append(("text", text))
            case Refusal(text):
                said.append(("refusal", text))
            case Thinking(text):
                said.append(("thinking", text))
            case ToolCall(_, name, arguments):
                said.append((f"call of {name}", arguments or "{}"))
            case _:
                said.append(("else", ""))
    return [(kind, text) for kind, text in said if kind != "else"]
