"""Properties of every reply and every prompt, in all formats."""

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
from gateway.wire.prompt.tool_names import CUSTOM_TOOL_ARG, sanitize_name, upstream_name
from gateway.wire.registry import CODECS
from tests.conformance.rules import chat, messages, responses
from tests.conformance.rules.ids import IssuedIds
from tests.support.formats.readers import check, check_body
from tests.support.grammar import assert_grammar
from tests.support.hypothesis_profiles import examples
from tests.wire.event_strategy import event_streams, invalid_usages, usages
from tests.wire.golden_files import TARGETS, answer, stream, visible, with_usage
from tests.wire.prompt_strategy import (
    normalize_prompt,
    prompts,
    reasoning_requests,
    thinking_targets,
    without_tool_errors,
)
from tests.wire.stream_cases import decode

RULES = {
    Format.CHAT: chat.refusals,
    Format.MESSAGES: messages.refusals,
    Format.RESPONSES: responses.refusals,
}
few_examples = examples(2)

TypedText = tuple[str, str]
"""The kind of a part, and its text."""


@given(event_streams(usages() | invalid_usages))
@few_examples
def test_every_stream_obeys_the_grammar_of_its_format(events: list[Event]) -> None:
    """Decoding does not depend on the chunks, and counts add up."""
    assert_grammar(events)
    for format in Format:
        raw, _ = stream(with_usage(events), format)
        check(format, _with_library_stop_reasons(raw), errored=_failed(events), include_usage=True)
        decoded = decode(CODECS[format].decoder(), raw)
        assert_grammar(decoded)
        _assert_adds_up(decoded[-1])
        assert decode(CODECS[format].decoder(), raw) == decoded
        chunks = [raw[at : at + 7] for at in range(0, len(raw), 7)]
        assert decode(CODECS[format].decoder(), *chunks) == decoded


@given(event_streams(fails=False))
@few_examples
def test_complete_replies_equal_streams(events: list[Event]) -> None:
    events = with_usage(events)
    for format in Format:
        body, dropped = answer(collect_reply(events), format)
        check_body(format, orjson.loads(_with_library_stop_reasons(orjson.dumps(body))))
        raw, also_dropped = stream(events, format)
        streamed = decode(CODECS[format].decoder(), raw)
        complete = [*reply_events(CODECS[format].parse_reply(body))]
        assert _content(complete, format) == _content(streamed, format)
        assert dropped == also_dropped


@given(event_streams())
@few_examples
def test_contents_arrive(events: list[Event]) -> None:
    events = with_usage(events)
    for format in Format:
        raw, _ = stream(events, format)
        decoded = decode(CODECS[format].decoder(), raw)
        _assert_texts_survive(events, decoded, format)
        if not _failed(events):
            _assert_calls_survive(_calls(events), _calls(decoded), format)
            _assert_counts_survive(events[-1], decoded[-1], format)


@given(prompts())
@few_examples
def test_common_contents_are_kept_between_formats(prompt: Prompt) -> None:
    """A prompt in the form in which upstreams get it is rendered unchanged; with its turns divided
    differently it keeps its content."""
    for format, target in TARGETS.items():
        if format is prompt.format:
            continue
        rendering = CODECS[format].render_prompt(prompt, target)
        parsed = CODECS[format].parse_prompt(_sent(rendering))
        result = replace(parsed, stop=parsed.stop + rendering.stop)
        assert rendering.dropped == frozenset()
        assert normalize_prompt(result, format) == normalize_prompt(prompt, format)
        assert _round_trip(parsed, target) == parsed
        turns = prompt.turns if format is Format.MESSAGES else without_tool_errors(prompt.turns)
        recut = replace(parsed, turns=turns)
        assert normalize_prompt(_round_trip(recut, target), format) == normalize_prompt(
            recut, format
        )


@given(prompts(irregular=True))
@few_examples
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


@given(
    prompts(irregular=True),
    st.lists(st.tuples(reasoning_requests(), thinking_targets()), min_size=3, max_size=5),
)
@few_examples
def test_thinking_budgets_leave_tokens_for_the_answer(
    prompt: Prompt, requests: list[tuple[tuple[Reasoning, int | None], Target]]
) -> None:
    for (reasoning, limit), target in requests:
        reasoning_prompt = replace(prompt, reasoning=reasoning, max_tokens=limit)
        body = CODECS[Format.MESSAGES].render_prompt(reasoning_prompt, target).body
        thinking = body.get("thinking", {"type": "disabled"})
        if thinking["type"] == "enabled":
            assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
        assert target.max_output is None or body["max_tokens"] <= target.max_output
        assert list(RULES[Format.MESSAGES](body, IssuedIds())) == []


def _round_trip(prompt: Prompt, target: Target) -> Prompt:
    """The prompt as an upstream of its own format parses it."""
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


def _assert_texts_survive(original: list[Event], decoded: list[Event], format: Format) -> None:
    """In order, failed or not. Messages has refusals as text, and chat one field for each kind."""
    if format is not Format.CHAT:
        assert _typed_texts(decoded, format) == _typed_texts(original, format)
        return
    texts, expected = _typed_texts(decoded, format), _typed_texts(original, format)
    assert _of_kind("text", texts) == _of_kind("text", expected)
    assert _of_kind("refusal", texts) == _of_kind("refusal", expected)
    assert _of_kind("thinking", texts) == "\n\n".join(filter(None, _thinking_texts(original)))


def _assert_calls_survive(
    original: list[ToolCall], decoded: list[ToolCall], format: Format
) -> None:
    """In order, with names, arguments, and ids that are legal and unique."""
    taken = set[str]()
    for call, result_call in zip(original, decoded, strict=True):
        assert (result_call.name, result_call.namespace) == _named(call, format)
        _assert_arguments_survive(call, result_call, format)
        sent = sanitize_name(call.id)
        assert result_call.id not in taken
        assert result_call.id == sent or not call.id or sent in taken
        taken.add(result_call.id)


def _assert_counts_survive(original: Event, decoded: Event, format: Format) -> None:
    assert isinstance(original, End) and isinstance(decoded, End)
    assert original.usage is not None
    assert decoded.usage is not None
    expected = _countable(original.usage, format)
    if format is Format.RESPONSES:  # searches are counted by their items too
        assert decoded.usage.web_searches >= expected.web_searches
        expected = replace(expected, web_searches=decoded.usage.web_searches)
    assert decoded.usage == expected


def _failed(events: Sequence[Event]) -> bool:
    return isinstance(events[-1], Fail)


def _with_library_stop_reasons(raw: bytes) -> bytes:
    """The client library's types have one stop reason only in their beta. Quotes in texts are
    escaped, so no text changes."""
    return raw.replace(b'"stop_reason":"compaction"', b'"stop_reason":"pause_turn"')


def _content(events: Sequence[Event], format: Format) -> Any:
    """The comparable content of a reply. A complete messages reply has parsed arguments and other
    positions of quotes. Chat has one field for each kind of part, and streams signatures last, so
    only parts of one kind have an order."""
    if format is not Format.CHAT:
        content = visible(events)
        for part in content["parts"]:
            if format is Format.MESSAGES and "arguments" in part:
                part["arguments"] = _parsed(part["arguments"])
            for citation in part.get("citations", ()):
                citation.pop("cited_text", None)
        return content
    parts = _parts(events)
    texts = {
        kind: _of_kind(kind, _typed_texts(events, format))
        for kind in ("text", "refusal", "thinking")
    }
    proofs = [part.signature for part in parts if isinstance(part, Thinking) and part.signature]
    return texts, _calls(events), proofs, visible(events)["end"]


def _parts(events: Iterable[Event]) -> tuple[Part, ...]:
    """The parts, maybe incomplete."""
    complete_events = [event for event in events if not isinstance(event, Begin | End | Fail)]
    reply: Reply = collect_reply([Begin("", ""), *complete_events, End(StopReason.PAUSE, None)])
    return reply.parts


def _typed_texts(events: Iterable[Event], format: Format) -> list[TypedText]:
    """All texts in order; adjacent texts of one kind are joined."""
    texts: list[TypedText] = []
    for part in _parts(events):
        match part:
            case Refusal(text) if format is Format.MESSAGES:
                texts.append(("text", text))
            case Text(text) | Refusal(text) | Thinking(text):
                texts.append((type(part).__name__.lower(), text))
            case _:
                pass
    return [
        (kind, text)
        for kind, item in groupby((one for one in texts if one[1]), key=lambda one: one[0])
        if (text := "".join(text for _, text in item))
    ]


def _of_kind(kind: str, texts: Iterable[TypedText]) -> str:
    return "".join(text for of, text in texts if of == kind)


def _thinking_texts(events: Iterable[Event]) -> list[str]:
    return [part.text for part in _parts(events) if isinstance(part, Thinking)]


def _calls(events: Iterable[Event]) -> list[ToolCall]:
    return [part for part in _parts(events) if isinstance(part, ToolCall)]


def _named(call: ToolCall, format: Format) -> tuple[str, str | None]:
    if format is Format.RESPONSES or call.namespace is None:
        return call.name, call.namespace
    return upstream_name(call.name, call.namespace), None


def _assert_arguments_survive(call: ToolCall, decoded: ToolCall, format: Format) -> None:
    """Exactly. Messages clients need a JSON object: other arguments are wrapped in one."""
    result = call.arguments
    if format is Format.MESSAGES and call.kind is CallKind.CUSTOM:
        assert orjson.loads(decoded.arguments) == {CUSTOM_TOOL_ARG: result}
    elif format is Format.MESSAGES and not isinstance(_parsed(result), dict):
        assert isinstance(orjson.loads(decoded.arguments or "{}"), dict)
    elif format is Format.MESSAGES:
        assert decoded.arguments == result.strip()
    else:
        default = "{}" if call.kind is CallKind.FUNCTION else ""
        assert (decoded.arguments, decoded.kind) == (result or default, call.kind)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _countable(usage: Usage, format: Format) -> Usage:
    """The usage as far as the format has fields."""
    if format is Format.MESSAGES:
        return usage
    usage = replace(usage, cache_write_1h_tokens=0)
    return usage if format is Format.RESPONSES else replace(usage, web_searches=0)
