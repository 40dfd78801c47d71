"""What holds for every reply and every prompt, whatever is in it, in whatever format.

The strategies say what may come; here stands what must become of it. It must not know any frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import groupby
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Begin, End, Event, Fail, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import CallKind, Part, Refusal, Text, Thinking, ToolCall
from gateway.core.prompt import Prompt, Reasoning
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.core.target import Target
from gateway.wire.codec import Rendering
from gateway.wire.ids import sanitize_name
from gateway.wire.registry import CODECS
from gateway.wire.tool_names import CUSTOM_TOOL_ARG, upstream_name
from tests.conformance.rules import chat, messages, responses
from tests.conformance.rules.ids import IssuedIds
from tests.support.grammar import assert_grammar
from tests.support.hypothesis_profiles import examples
from tests.wire.event_strategy import event_streams, odd_usages, usages
from tests.wire.golden_files import TARGETS, answer, stream, visible, with_usage
from tests.wire.prompt_strategy import all_well, meant, prompts, thinkers, wishes
from tests.wire.stream_cases import decode
from tests.wire.strict.checkers import check, check_body

RULES = {
    Format.CHAT: chat.refusals,
    Format.MESSAGES: messages.refusals,
    Format.RESPONSES: responses.refusals,
}
law = examples(2)

Said = tuple[str, str]
"""The kind of a part, and its words."""


@given(event_streams(usages() | odd_usages))
@law
def test_every_stream_obeys_the_grammar_of_its_format(events: list[Event]) -> None:
    """And is read alike each time, however it is cut. Its counts add up, whatever came."""
    assert_grammar(events)
    for format in Format:
        raw, _ = stream(with_usage(events), format)
        check(format, _in_stock_words(raw), errored=_failed(events), include_usage=True)
        decoded = decode(CODECS[format].decoder(), raw)
        assert_grammar(decoded)
        _assert_adds_up(decoded[-1])
        assert decode(CODECS[format].decoder(), raw) == decoded
        pieces = [raw[at : at + 7] for at in range(0, len(raw), 7)]
        assert decode(CODECS[format].decoder(), *pieces) == decoded


@given(event_streams(fails=False))
@law
def test_complete_replies_equal_streams(events: list[Event]) -> None:
    events = with_usage(events)
    for format in Format:
        body, lost = answer(collect_reply(events), format)
        check_body(format, orjson.loads(_in_stock_words(orjson.dumps(body))))
        raw, also_lost = stream(events, format)
        streamed = decode(CODECS[format].decoder(), raw)
        whole = [*reply_events(CODECS[format].parse_reply(body))]
        assert _tale(whole, format) == _tale(streamed, format)
        assert lost == also_lost


@given(event_streams())
@law
def test_contents_arrive(events: list[Event]) -> None:
    events = with_usage(events)
    for format in Format:
        raw, _ = stream(events, format)
        came = decode(CODECS[format].decoder(), raw)
        _assert_words_survive(events, came, format)
        if not _failed(events):
            _assert_calls_survive(_calls(events), _calls(came), format)
            _assert_counts_survive(events[-1], came[-1], format)


@given(prompts())
@law
def test_common_contents_are_kept_between_formats(prompt: Prompt) -> None:
    """And a client of the other format that says the same has it said again: to the last pocket
    where it is spelled as upstreams get it, in its meaning where its turns are cut another way."""
    for format, target in TARGETS.items():
        if format is prompt.format:
            continue
        rendering = CODECS[format].render_prompt(prompt, target)
        own = CODECS[format].parse_prompt(_sent(rendering))
        result = replace(own, stop=own.stop + rendering.stop)
        assert rendering.dropped == frozenset()
        assert meant(result, format) == meant(prompt, format)
        assert _said_again(own, target) == own
        turns = prompt.turns if format is Format.MESSAGES else all_well(prompt.turns)
        recut = replace(own, turns=turns)
        assert meant(_said_again(recut, target), format) == meant(recut, format)


@given(prompts(odd=True))
@law
def test_upstreams_accept_every_prompt_and_get_the_same_bytes_again(prompt: Prompt) -> None:
    for format, target in TARGETS.items():
        if format is prompt.format:
            continue
        rendering = CODECS[format].render_prompt(prompt, target)
        raw = orjson.dumps(rendering.body)
        assert list(RULES[format](orjson.loads(raw), IssuedIds())) == []
        again = CODECS[format].render_prompt(deepcopy(prompt), target)
        assert orjson.dumps(again.body) == raw
        assert replace(again, body={}) == replace(rendering, body={})


@given(prompts(odd=True), st.lists(st.tuples(wishes(), thinkers()), min_size=3, max_size=5))
@law
def test_thinking_budgets_leave_tokens_for_the_answer(
    prompt: Prompt, asked: list[tuple[tuple[Reasoning, int | None], Target]]
) -> None:
    for (wish, limit), target in asked:
        wishing = replace(prompt, reasoning=wish, max_tokens=limit)
        body = CODECS[Format.MESSAGES].render_prompt(wishing, target).body
        thinking = body.get("thinking", {"type": "disabled"})
        if thinking["type"] == "enabled":
            assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
        assert target.max_output is None or body["max_tokens"] <= target.max_output
        assert list(RULES[Format.MESSAGES](body, IssuedIds())) == []


def _said_again(prompt: Prompt, target: Target) -> Prompt:
    """What an upstream of the prompt's own format takes it for."""
    codec = CODECS[prompt.format]
    rendering = codec.render_prompt(prompt, target)
    assert (rendering.dropped, rendering.stop) == (frozenset(), ())
    return codec.parse_prompt(_sent(rendering))


def _sent(rendering: Rendering) -> Any:
    return orjson.loads(orjson.dumps(rendering.body))


def _assert_adds_up(last: Event) -> None:
    usage = last.usage if isinstance(last, End | Fail) else None
    if usage is not None:
        assert min(usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) >= 0
        assert usage.cache_read_tokens + usage.cache_write_tokens <= usage.input_tokens
        assert usage.reasoning_tokens <= usage.output_tokens


def _assert_words_survive(went: list[Event], came: list[Event], format: Format) -> None:
    """In their order, failed or not. Messages has refusals as text, and chat has each kind in a
    place of its own."""
    if format is not Format.CHAT:
        assert _said(came, format) == _said(went, format)
        return
    words, expected = _said(came, format), _said(went, format)
    assert _of_kind("text", words) == _of_kind("text", expected)
    assert _of_kind("refusal", words) == _of_kind("refusal", expected)
    assert _of_kind("thinking", words) == "\n\n".join(filter(None, _thoughts(went)))


def _assert_calls_survive(went: list[ToolCall], came: list[ToolCall], format: Format) -> None:
    """In their order, with their names, what they say, and their ids where those are legal and no
    other call's."""
    taken = set[str]()
    for call, back in zip(went, came, strict=True):
        assert (back.name, back.namespace) == _named(call, format)
        _assert_says(call, back, format)
        sent = sanitize_name(call.id)
        assert back.id not in taken
        assert back.id == sent or not call.id or sent in taken
        taken.add(back.id)


def _assert_counts_survive(went: Event, came: Event, format: Format) -> None:
    assert isinstance(went, End) and isinstance(came, End)
    assert went.usage is not None
    assert came.usage == _countable(went.usage, format)


def _failed(events: Sequence[Event]) -> bool:
    return isinstance(events[-1], Fail)


def _in_stock_words(raw: bytes) -> bytes:
    """The stock types know one reason to stop in their beta alone. Quotes within words are escaped,
    so this changes none."""
    return raw.replace(b'"stop_reason":"compaction"', b'"stop_reason":"pause_turn"')


def _tale(events: Sequence[Event], format: Format) -> Any:
    """All that a reply tells. A whole messages reply has its arguments parsed, and can quote what
    was said only after its citation. Chat has a place of
    its own for each kind of things, and streams what proves its reasoning last: there only things
    of one kind have an order."""
    if format is not Format.CHAT:
        tale = visible(events)
        for part in tale["parts"]:
            if format is Format.MESSAGES and "arguments" in part:
                part["arguments"] = _parsed(part["arguments"])
            for citation in part.get("citations", ()):
                citation.pop("cited_text", None)
        return tale
    parts = _parts(events)
    words = {
        kind: _of_kind(kind, _said(events, format)) for kind in ("text", "refusal", "thinking")
    }
    proofs = [part.signature for part in parts if isinstance(part, Thinking) and part.signature]
    return words, _calls(events), proofs, visible(events)["end"]


def _parts(events: Iterable[Event]) -> tuple[Part, ...]:
    """The parts as far as they came."""
    arrived = [event for event in events if not isinstance(event, Begin | End | Fail)]
    reply: Reply = collect_reply([Begin("", ""), *arrived, End(StopReason.PAUSE, None)])
    return reply.parts


def _said(events: Iterable[Event], format: Format) -> list[Said]:
    """All words in their order; what is said in several parts of a kind is said in one."""
    words: list[Said] = []
    for part in _parts(events):
        match part:
            case Refusal(text) if format is Format.MESSAGES:
                words.append(("text", text))
            case Text(text) | Refusal(text) | Thinking(text):
                words.append((type(part).__name__.lower(), text))
            case _:
                pass
    return [
        (kind, text)
        for kind, item in groupby((one for one in words if one[1]), key=lambda one: one[0])
        if (text := "".join(text for _, text in item))
    ]


def _of_kind(kind: str, words: Iterable[Said]) -> str:
    return "".join(text for of, text in words if of == kind)


def _thoughts(events: Iterable[Event]) -> list[str]:
    return [part.text for part in _parts(events) if isinstance(part, Thinking)]


def _calls(events: Iterable[Event]) -> list[ToolCall]:
    return [part for part in _parts(events) if isinstance(part, ToolCall)]


def _named(call: ToolCall, format: Format) -> tuple[str, str | None]:
    if format is Format.RESPONSES or call.namespace is None:
        return call.name, call.namespace
    return upstream_name(call.name, call.namespace), None


def _assert_says(call: ToolCall, came: ToolCall, format: Format) -> None:
    """To the byte. Messages clients cannot read what is no JSON object: they get one around it."""
    result = call.arguments
    if format is Format.MESSAGES and call.kind is CallKind.CUSTOM:
        assert orjson.loads(came.arguments) == {CUSTOM_TOOL_ARG: result}
    elif format is Format.MESSAGES and not isinstance(_parsed(result), dict):
        assert isinstance(orjson.loads(came.arguments or "{}"), dict)
    elif format is Format.MESSAGES:
        assert came.arguments == result.strip()
    else:
        unsaid = "{}" if call.kind is CallKind.FUNCTION else ""
        assert (came.arguments, came.kind) == (result or unsaid, call.kind)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _countable(usage: Usage, format: Format) -> Usage:
    """What of the usage the format has a field for."""
    if format is Format.MESSAGES:
        return usage
    usage = replace(usage, cache_write_1h_tokens=0)
    return usage if format is Format.RESPONSES else replace(usage, web_searches=0)
