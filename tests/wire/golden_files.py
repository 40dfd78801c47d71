"""The output of the codecs for the fixtures, in files next to them, for review.

    python -m tests.wire.golden_files            writes missing or different files, lists them
    python -m tests.wire.golden_files one_tool   the same for the cases of that name alone

For a reply: `client.<format>.sse` and `client.<format>.json` are sent to a client;
`left.<format>.json` is the content that arrives, if it is not complete (`left_whole.<format>.json`
if the body differs from the stream); `dropped.json` has the names of the dropped content. For a
quirk there are only the last two. For a prompt: `prompt.json` is the parsed prompt, and
`upstream.<format>.json` the request to upstreams of a format, by the formats of the clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from gateway.core.events import Begin, Delta, End, Event, Fail, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import Part, Thinking
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.core.target import SamplingStyle, Target, ThinkingStyle, ToolEffort
from gateway.errors import ServiceUnavailable, UnsupportedField
from gateway.wire.codec import Encoder, Rendering, ReplyMetadata
from gateway.wire.prompt import signatures
from gateway.wire.registry import CODECS
from tests.support.fixture_json import from_json, read_events, to_json, write_prompt
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import decode

CLIENT_MODEL = "the-model-asked-for"
METADATA = ReplyMetadata(reply_id="stamp", created=1767225600, origin="here", input_tokens=10)
TARGET = Target(
    model="upstream-model", origin="here", max_output=64000, thinking=ThinkingStyle.ADAPTIVE
)
TARGETS = {
    Format.CHAT: replace(TARGET, system_turns=True),
    Format.MESSAGES: replace(TARGET, cache_marks=True),
    Format.RESPONSES: replace(TARGET, system_turns=True, custom_tools=True),
}
"""The default target of each format."""

CASES = sorted(path.parent for path in FIXTURES.glob("streams/*/events.json"))
QUIRKS = sorted(path.parent for path in FIXTURES.glob("quirks/*/*/events.json"))
PROMPTS = sorted({path.parent for path in FIXTURES.glob("prompts/*/*.json")})


def client(format: Format, *, include_usage: bool = True) -> Prompt:
    """The prompt of a client that requests a stream."""
    return Prompt(
        format=format, model=CLIENT_MODEL, turns=(), stream=True, include_usage=include_usage
    )


def error_for(failure: Fail) -> ServiceUnavailable:
    """The client's error for a failure; one class is enough for these tests."""
    return ServiceUnavailable(failure.failure.message)


def encode(encoder: Encoder, events: Sequence[Event]) -> bytes:
    """The events as a client's stream."""
    return b"".join(
        encoder.encode_error(error_for(event)) if isinstance(event, Fail) else encoder.encode(event)
        for event in events
    )


def with_usage(events: Sequence[Event]) -> list[Event]:
    """The events as encoders get them: where the upstream counted nothing, with an estimate."""
    pieces = [event.piece for event in events if isinstance(event, Delta)]
    chars = sum(len(piece) for piece in pieces if isinstance(piece, str))
    estimate = Usage(input_tokens=METADATA.input_tokens, output_tokens=max(1, chars // 4))
    return [
        replace(event, usage=estimate) if isinstance(event, End) and event.usage is None else event
        for event in events
    ]


def visible(events: Sequence[Event]) -> dict[str, Any]:
    """The content of a stream, independent of its deltas: its parts, maybe incomplete, and its end.
    Signatures that were wrapped for the client's format are unwrapped."""
    last = events[-1]
    if not any(isinstance(event, Begin) for event in events):
        events = [Begin("", ""), *events]
    reply = collect_reply(
        [*events[:-1], last if isinstance(last, End) else End(StopReason.PAUSE, None)]
    )
    parts = [_unpacked(part) for part in reply.parts]
    if isinstance(last, End):
        last = replace(last, service_tier=None)  # messages always has one
    end = last.failure.message if isinstance(last, Fail) else to_json(last)
    return {"parts": [to_json(part) for part in parts], "end": end}


def _unpacked(part: Part) -> Part:
    data = part.signature.data if isinstance(part, Thinking) and part.signature else None
    packed = data.get("encrypted_content") if isinstance(data, dict) else data
    if not isinstance(part, Thinking) or not isinstance(packed, str):
        return part
    if not signatures.is_wrapped(packed):
        return part
    thinking = signatures.unwrap(packed, part.text)
    assert thinking.origin == METADATA.origin
    return replace(thinking, origin=None)


def client_view(case: Path, format: Format) -> dict[str, Any]:
    """The content of the case that arrives at a client of the format, from its file."""
    own = case / f"left.{format}.json"
    if own.exists():
        written: dict[str, Any] = orjson.loads(own.read_bytes())
        return written
    return visible(with_usage(from_json(read_events(case / "events.json"))))


def client_view_of_body(case: Path, format: Format) -> dict[str, Any]:
    """The same of the complete body, which may have another order than the stream."""
    own = case / f"left_whole.{format}.json"
    if own.exists():
        written: dict[str, Any] = orjson.loads(own.read_bytes())
        return written
    return client_view(case, format)


def files_of_reply(case: Path) -> Iterator[tuple[Path, bytes | None]]:
    """Every golden file of a reply; None for one that should not be there."""
    events = with_usage(from_json(read_events(case / "events.json")))
    dropped: dict[str, list[str]] = {}
    for format in Format:
        raw, dropped_names = stream(events, format)
        yield case / f"client.{format}.sse", raw if case in CASES else None
        received = visible(decode(CODECS[format].decoder(), raw))
        is_complete = received == visible(events)
        yield case / f"left.{format}.json", None if is_complete else _dumps(received)
        body, dropped_in_body = (None, set[str]())
        received_body = received
        if not isinstance(events[-1], Fail):
            body, dropped_in_body = answer(collect_reply(events), format)
            received_body = visible([*reply_events(CODECS[format].parse_reply(body))])
        same = received_body == received
        yield case / f"left_whole.{format}.json", None if same else _dumps(received_body)
        written = body is not None and case in CASES
        yield case / f"client.{format}.json", _dumps(body) if written else None
        if dropped_names or dropped_in_body:
            dropped[str(format)] = sorted({*dropped_names, *dropped_in_body})
    yield case / "dropped.json", _dumps(dropped) if dropped else None


def stream(events: Sequence[Event], format: Format) -> tuple[bytes, Set[str]]:
    """The events as a client's stream, and the names of dropped content."""
    encoder = CODECS[format].encoder(client(format), METADATA)
    return encode(encoder, events), encoder.dropped


def answer(reply: Reply, format: Format) -> tuple[dict[str, Any], Set[str]]:
    """The reply as a client's body, and the names of dropped content."""
    return CODECS[format].render_reply(reply, replace(client(format), stream=False), METADATA)


def targets(case: Path) -> dict[Format, Target]:
    """The target of each format: the default with the fields in the case's `targets.json`."""
    path = case / "targets.json"
    own = orjson.loads(path.read_bytes()) if path.exists() else {}
    return {
        format: replace(TARGETS[format], **_target_fields(own.get(format, {}))) for format in Format
    }


def _target_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a target, converted to their types."""
    styles = {"thinking": ThinkingStyle, "sampling": SamplingStyle, "tool_effort": ToolEffort}
    styles |= {"efforts": tuple}
    return {name: styles.get(name, bool)(value) for name, value in fields.items()}


def prompts_of(case: Path) -> dict[Format, Prompt]:
    """The case in every format that can express it."""
    return {
        format: CODECS[format].parse_prompt(orjson.loads(path.read_bytes()))
        for format in Format
        if (path := case / f"{format}.json").exists()
    }


def files_of_prompt(case: Path) -> Iterator[tuple[Path, bytes | None]]:
    prompts = prompts_of(case)
    written_prompts = {format: write_prompt(prompt) for format, prompt in prompts.items()}
    path = case / "prompt.json"
    prompt_file = path.read_bytes() if path.exists() else next(iter(written_prompts.values()))
    if prompt_file not in written_prompts.values():
        prompt_file = next(iter(written_prompts.values()))
    yield path, prompt_file
    for format in Format:
        own = written_prompts.get(format, prompt_file)
        yield case / f"prompt.{format}.json", None if own == prompt_file else own
    for format, target in targets(case).items():
        fields = {source: rendered(prompt, format, target) for source, prompt in prompts.items()}
        yield case / f"upstream.{format}.json", _dumps(_joined(fields))


def rendered(prompt: Prompt, format: Format, target: Target) -> dict[str, Any]:
    """The request to an upstream and its other properties, or the reason of a refusal."""
    try:
        rendering = CODECS[format].render_prompt(prompt, target)
    except UnsupportedField as refused:
        return {"refused": refused.message}
    return _rendering_fields(rendering)


def _rendering_fields(rendering: Rendering) -> dict[str, Any]:
    fields: dict[str, Any] = {"body": rendering.body}
    if rendering.dropped:
        fields["dropped"] = sorted(rendering.dropped)
    if rendering.stop:
        fields["stop"] = rendering.stop
    if rendering.json_tool:
        fields["json_tool"] = rendering.json_tool
    if rendering.fenced:
        fields["fenced"] = True
    return fields


def _joined(fields: Mapping[Format, dict[str, Any]]) -> dict[str, Any]:
    """Equal results for clients of several formats are listed once."""
    joined: dict[bytes, list[str]] = {}
    for source, result in fields.items():
        joined.setdefault(orjson.dumps(result), []).append(str(source))
    return {
        f"from {' and '.join(sources)}": orjson.loads(result) for result, sources in joined.items()
    }


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _write(files: Callable[[Path], Iterator[tuple[Path, bytes | None]]], case: Path) -> None:
    for path, content in files(case):
        before = path.read_bytes() if path.exists() else None
        if before == content:
            continue
        sys.stdout.write(f"{path.relative_to(FIXTURES)}\n")
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)


if __name__ == "__main__":
    for cases, files in ((CASES + QUIRKS, files_of_reply), (PROMPTS, files_of_prompt)):
        for case in cases:
            if case.name in sys.argv[1:] or not sys.argv[1:]:
                _write(files, case)
