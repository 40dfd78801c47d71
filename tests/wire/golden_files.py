"""What the codecs make of the fixtures, kept as files beside them so that a person can read it.

    python -m tests.wire.golden_files            writes what is missing or differs, and names it
    python -m tests.wire.golden_files one_tool   the same for the cases of that name alone

Beside a reply: `client.<format>.sse` and `client.<format>.json` are what a client gets of it,
`left.<format>.json` what a client can tell of it, where that is not all (`left_whole.<format>.json`
where one body tells something else than the stream), and `dropped.json` the names of what was lost;
beside a quirk only what is left and what was lost. Beside a prompt: `prompt.json` is its
hinge, and `upstream.<format>.json` what upstreams of a format get of it, by the formats of the
clients. This room must not know any format's details.
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
from gateway.wire import signatures
from gateway.wire.codec import Encoder, Rendering, ReplyMetadata
from gateway.wire.registry import CODECS
from tests.support.fixture_json import from_json, read_events, to_json, write_prompt
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import decode

CLIENT_MODEL = "the-model-asked-for"
METADATA = ReplyMetadata(reply_id="stamp", created=1767225600, origin="here", input_tokens=10)
TARGET = Target(model="upstream-model", origin="here", max_output=64000)
TARGETS = {
    Format.CHAT: replace(TARGET, system_turns=True),
    Format.MESSAGES: replace(TARGET, cache_marks=True),
    Format.RESPONSES: replace(TARGET, system_turns=True, custom_tools=True),
}
"""Who is asked, per format, as it is suggested where nothing is configured."""

CASES = sorted(path.parent for path in FIXTURES.glob("streams/*/events.json"))
QUIRKS = sorted(path.parent for path in FIXTURES.glob("quirks/*/*/events.json"))
PROMPTS = sorted({path.parent for path in FIXTURES.glob("prompts/*/*.json")})


def client(format: Format, *, include_usage: bool = True) -> Prompt:
    """Who asks: a client of the format that wants a stream."""
    return Prompt(
        format=format, model=CLIENT_MODEL, turns=(), stream=True, include_usage=include_usage
    )


def error_for(failure: Fail) -> ServiceUnavailable:
    """What the server makes of any failure, as far as these tests care."""
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
    """What a stream tells, however it is cut into pieces: its parts as far as they came, and how it
    ends. Signatures that were packed for the client's format are taken apart."""
    last = events[-1]
    if not any(isinstance(event, Begin) for event in events):
        events = [Begin("", ""), *events]
    reply = collect_reply(
        [*events[:-1], last if isinstance(last, End) else End(StopReason.PAUSE, None)]
    )
    parts = [_unpacked(part) for part in reply.parts]
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
    """What a client of the format can tell of the case, as it is written."""
    own = case / f"left.{format}.json"
    if own.exists():
        written: dict[str, Any] = orjson.loads(own.read_bytes())
        return written
    return visible(with_usage(from_json(read_events(case / "events.json"))))


def client_view_of_body(case: Path, format: Format) -> dict[str, Any]:
    """The same of the reply as one body, which may have another order than the stream."""
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
        raw, lost = stream(events, format)
        yield case / f"client.{format}.sse", raw if case in CASES else None
        remains = visible(decode(CODECS[format].decoder(), raw))
        told_all = remains == visible(events)
        yield case / f"left.{format}.json", None if told_all else _dumps(remains)
        body, also_lost = (None, set[str]())
        remains_whole = remains
        if not isinstance(events[-1], Fail):
            body, also_lost = answer(collect_reply(events), format)
            remains_whole = visible([*reply_events(CODECS[format].parse_reply(body))])
        same = remains_whole == remains
        yield case / f"left_whole.{format}.json", None if same else _dumps(remains_whole)
        written = body is not None and case in CASES
        yield case / f"client.{format}.json", _dumps(body) if written else None
        if lost or also_lost:
            dropped[str(format)] = sorted({*lost, *also_lost})
    yield case / "dropped.json", _dumps(dropped) if dropped else None


def stream(events: Sequence[Event], format: Format) -> tuple[bytes, Set[str]]:
    """The events as a client's stream, and the names of what was lost."""
    encoder = CODECS[format].encoder(client(format), METADATA)
    return encode(encoder, events), encoder.dropped


def answer(reply: Reply, format: Format) -> tuple[dict[str, Any], Set[str]]:
    """The reply as a client's body, and the names of what was lost."""
    return CODECS[format].render_reply(reply, replace(client(format), stream=False), METADATA)


def targets(case: Path) -> dict[Format, Target]:
    """Who is asked, per format: `targets.json` beside the case says where it is not the usual."""
    path = case / "targets.json"
    own = orjson.loads(path.read_bytes()) if path.exists() else {}
    return {
        format: replace(TARGETS[format], **_told_apart(own.get(format, {}))) for format in Format
    }


def _told_apart(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a target as their types are."""
    styles = {"thinking": ThinkingStyle, "sampling": SamplingStyle, "tool_effort": ToolEffort}
    styles |= {"efforts": tuple}
    return {name: styles.get(name, bool)(value) for name, value in fields.items()}


def prompts_of(case: Path) -> dict[Format, Prompt]:
    """The case as every format says it that can."""
    return {
        format: CODECS[format].parse_prompt(orjson.loads(path.read_bytes()))
        for format in Format
        if (path := case / f"{format}.json").exists()
    }


def files_of_prompt(case: Path) -> Iterator[tuple[Path, bytes | None]]:
    prompts = prompts_of(case)
    hinges = {format: write_prompt(prompt) for format, prompt in prompts.items()}
    path = case / "prompt.json"
    hinge = path.read_bytes() if path.exists() else next(iter(hinges.values()))
    if hinge not in hinges.values():
        hinge = next(iter(hinges.values()))
    yield path, hinge
    for format in Format:
        own = hinges.get(format, hinge)
        yield case / f"prompt.{format}.json", None if own == hinge else own
    for format, target in targets(case).items():
        fields = {source: rendered(prompt, format, target) for source, prompt in prompts.items()}
        yield case / f"upstream.{format}.json", _dumps(_joined(fields))


def rendered(prompt: Prompt, format: Format, target: Target) -> dict[str, Any]:
    """What an upstream gets of a prompt, and what becomes of the rest; or why it gets nothing."""
    try:
        rendering = CODECS[format].render_prompt(prompt, target)
    except UnsupportedField as refused:
        return {"refused": refused.message}
    return _told(rendering)


def _told(rendering: Rendering) -> dict[str, Any]:
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
    """The same for clients of several formats is told once."""
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
    for room, files in ((CASES + QUIRKS, files_of_reply), (PROMPTS, files_of_prompt)):
        for case in room:
            if case.name in sys.argv[1:] or not sys.argv[1:]:
                _write(files, case)
