"""Hypothesis strategies: every stream of events that the grammar of `core.events` permits.

The streams are as irregular as those of upstreams, but never malformed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
from hypothesis import strategies as st

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Failure,
    FailureKind,
    Open,
    Ping,
    Signature,
    StopReason,
    Usage,
)
from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CallKind,
    Citation,
    Document,
    Image,
    Part,
    ProviderData,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)

Piece = str | Signature | Citation
PartDeltas = tuple[Part, list[Piece]]
"""A part as it opens, and its deltas."""

_TEXTS = st.text(max_size=10) | st.sampled_from(
    ["\n\n", "data: x\n\n", '"\\', "\u2028", "👩‍👩‍👧", "Hello, world. ", "\x00", " "]
)
_IDS = st.sampled_from(["call_1", "call_2", "", "functions.f:0", "x" * 80]) | st.text(max_size=6)
_STATUSES = st.none() | st.just(529)
_NAMES = st.sampled_from(["look_up", "odd name ü", "n" * 70, "a.b"])
_PROOFS = st.sampled_from(
    [
        ProviderData(Format.MESSAGES, "c2lnbmF0dXJl"),
        ProviderData(Format.MESSAGES, "b3RoZXI="),
        ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "ZW5j"}),
        ProviderData(Format.RESPONSES, {"id": "rs_2", "encrypted_content": "ZW5jMg=="}),
        ProviderData(Format.CHAT, [{"type": "reasoning.encrypted", "data": "ZW5j"}]),
    ]
)
_CITATIONS = st.builds(
    Citation,
    url=st.none() | st.just("https://example.org/a"),
    title=st.none() | st.just("A page"),
    cited_text=st.none() | st.just("it says"),
    start=st.none() | st.integers(0, 40),
    end=st.none() | st.integers(0, 40),
    extra=st.none()
    | st.just(
        ProviderData(
            Format.MESSAGES,
            {
                "type": "char_location",
                "cited_text": "it says",
                "document_index": 0,
                "document_title": None,
                "file_id": None,
                "start_char_index": 0,
                "end_char_index": 7,
            },
        )
    ),
)
_OTHERS: st.SearchStrategy[Part] = st.sampled_from(
    [
        UnknownPart(
            "compaction", ProviderData(Format.MESSAGES, {"type": "compaction", "content": "x"})
        ),
        UnknownPart(
            "image_generation_call",
            ProviderData(
                Format.RESPONSES,
                {
                    "type": "image_generation_call",
                    "id": "ig_1",
                    "status": "completed",
                    "result": "aW1n",
                },
            ),
        ),
        UnknownPart("hologram", ProviderData(Format.CHAT, {"type": "hologram"})),
        Image(Source(url="https://example.org/i.png")),
        Document(text="words"),
        Audio(Source(data="UklGRg==", media_type="audio/wav")),
        ServerToolResult("srch_1", "web_search", ProviderData(Format.RESPONSES, {"id": "srch_1"})),
        ServerToolResult(
            "srch_1",
            "web_search",
            ProviderData(
                Format.MESSAGES,
                {"type": "web_search_tool_result", "tool_use_id": "srch_1", "content": []},
            ),
        ),
    ]
)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Consistent counts: no part exceeds its total."""
    prompt_tokens, reply_tokens = draw(st.integers(1, 10**9)), draw(st.integers(0, 10**9))
    read = draw(st.just(0) | st.integers(0, prompt_tokens))
    written = draw(st.just(0) | st.integers(0, prompt_tokens - read))
    return Usage(
        input_tokens=prompt_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=draw(st.just(0) | st.integers(0, written)),
        output_tokens=reply_tokens,
        reasoning_tokens=draw(st.just(0) | st.integers(0, reply_tokens)),
        web_searches=draw(st.integers(0, 3)),
    )


_COUNTS = st.sampled_from([0, 1, 7, 100, 10**9])
invalid_usages = st.builds(
    Usage,
    input_tokens=_COUNTS,
    cache_read_tokens=_COUNTS,
    cache_write_tokens=_COUNTS,
    cache_write_1h_tokens=_COUNTS,
    output_tokens=_COUNTS,
    reasoning_tokens=_COUNTS,
    web_searches=_COUNTS,
)
"""Inconsistent counts of upstreams: some are missing, some exceed their total."""


_SCALARS: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1.5, 1e30, 2**63, "", "ü", '"\\', "👩", [], {}]
)
_VALUES = _SCALARS | st.text(max_size=4) | st.lists(_SCALARS, max_size=2)


@st.composite
def objects(draw: st.DrawFn) -> str:
    """The text of a JSON object, in one of several notations."""
    value = draw(st.dictionaries(st.text(max_size=6), _VALUES, max_size=3))
    if draw(st.booleans()):
        return orjson.dumps(value).decode()
    return json.dumps(value, indent=draw(st.none() | st.integers(0, 2)))


@st.composite
def _cut(draw: st.DrawFn, text: str) -> list[Piece]:
    """The text as deltas, none of them empty."""
    places = draw(st.sets(st.integers(1, len(text) - 1), max_size=4)) if len(text) > 1 else set()
    edges = [0, *sorted(places), len(text)]
    return [text[one:other] for one, other in pairwise(edges) if one < other]


@st.composite
def _texts(draw: st.DrawFn) -> PartDeltas:
    pieces: list[Piece] = [*draw(_cut("".join(draw(st.lists(_TEXTS, max_size=3)))))]
    for citation in draw(st.lists(_CITATIONS, max_size=2)):
        pieces.insert(draw(st.integers(0, len(pieces))), citation)
    return Text(draw(st.just("") | _TEXTS)), pieces


@st.composite
def _refusals(draw: st.DrawFn) -> PartDeltas:
    return Refusal(draw(st.just("") | _TEXTS)), draw(_cut(draw(_TEXTS)))


@st.composite
def _thinking(draw: st.DrawFn) -> PartDeltas:
    signed = [Signature(proof) for proof in draw(st.lists(_PROOFS, max_size=2))]
    if draw(st.integers(0, 3)) == 0:
        return Thinking(redacted=True, signature=draw(_PROOFS)), [*signed]
    pieces: list[Piece] = draw(_cut(draw(_TEXTS)))
    for signature in signed:
        pieces.insert(draw(st.integers(0, len(pieces))), signature)
    return Thinking(draw(st.just("") | _TEXTS)), pieces


@st.composite
def _calls(draw: st.DrawFn) -> PartDeltas:
    custom = draw(st.integers(0, 3)) == 0
    result = draw(_TEXTS if custom else st.just("") | objects() | objects() | objects() | _TEXTS)
    call = ToolCall(
        draw(_IDS),
        draw(_NAMES),
        kind=CallKind.CUSTOM if custom else CallKind.FUNCTION,
        namespace=draw(st.none() | st.just("space")),
    )
    pieces: list[Piece] = draw(_cut(result))
    if draw(st.integers(0, 4)) == 0:
        return replace(call, arguments=result), []
    return call, pieces


@st.composite
def _searches(draw: st.DrawFn) -> PartDeltas:
    name = draw(st.sampled_from(["web_search", "code_execution"]))
    result = draw(objects() | st.just('{"type":"search","query":"Oslo"}'))
    return ServerToolCall(draw(st.sampled_from(["srch_1", "srv_2"])), name), draw(_cut(result))


_KINDS: dict[str, st.SearchStrategy[PartDeltas]] = {
    "text": _texts(),
    "refusal": _refusals(),
    "thought": _thinking(),
    "call": _calls(),
    "search": _searches(),
    "other": _OTHERS.map(lambda part: (part, [])),
}
_USUAL = st.sampled_from(["text", "text", "text", "thought", "call", "call", "call", *_KINDS])


def _group(draw: st.DrawFn) -> list[PartDeltas]:
    """Parts that may be open at once: one of any kind, or several calls."""
    kind = draw(_USUAL)
    together = draw(st.integers(1, 3)) if kind == "call" else 1
    return [draw(_KINDS[kind]) for _ in range(together)]


def _interleave(draw: st.DrawFn, group: Sequence[PartDeltas], first: int) -> list[Event]:
    """The events of the parts, interleaved. `first` is the index of the first part."""
    turns = [at for at, (_, pieces) in enumerate(group) for _ in range(len(pieces) + 2)]
    if len(group) > 1:
        turns = draw(st.permutations(turns))
    left = [[part, *pieces, None] for part, pieces in group]
    index: dict[int, int] = {}
    events: list[Event] = []
    for at in turns:
        step: Any = left[at].pop(0)
        if at not in index:
            index[at] = first + len(index)
            events.append(Open(index[at], step))
        else:
            events.append(Close(index[at]) if step is None else Delta(index[at], step))
    return events


def _initial_usage(draw: st.DrawFn, counts: Usage) -> Usage:
    """The usage at the beginning of the reply: counts only grow."""
    cached = draw(st.booleans())
    return Usage(
        input_tokens=counts.input_tokens,
        cache_read_tokens=counts.cache_read_tokens if cached else 0,
        cache_write_tokens=counts.cache_write_tokens if cached else 0,
        output_tokens=draw(st.integers(0, min(4, counts.output_tokens))),
    )


def _end(draw: st.DrawFn, counts: Usage | None) -> End:
    stop = draw(st.sampled_from(StopReason))
    sequence = draw(st.none() | st.just("STOP")) if stop is StopReason.STOP_SEQUENCE else None
    return End(stop, counts, sequence)


def _fail(draw: st.DrawFn, counts: Usage | None) -> Fail:
    kind = draw(st.sampled_from(FailureKind))
    failure = Failure(kind=kind, message=draw(_TEXTS) or "no words", status=draw(_STATUSES))
    return Fail(failure, counts)


@st.composite
def event_streams(
    draw: st.DrawFn, counts: st.SearchStrategy[Usage] | None = None, *, fails: bool = True
) -> list[Event]:
    """A complete stream, or one that fails at any point, also before `Begin`."""
    usage = draw(st.none() | (usages() if counts is None else counts))
    early = None if usage is None or draw(st.booleans()) else _initial_usage(draw, usage)
    events: list[Event] = [Begin(draw(_IDS), "upstream-model", usage=early)]
    parts = 0
    for _ in range(draw(st.integers(0, 4))):
        group = _group(draw)
        events += _interleave(draw, group, parts)
        parts += len(group)
    for _ in range(draw(st.integers(0, 2))):
        events.insert(draw(st.integers(1, len(events))), Ping())
    if fails and draw(st.integers(0, 4)) == 0:
        return [*events[: draw(st.integers(0, len(events)))], _fail(draw, usage)]
    return [*events, _end(draw, usage)]
