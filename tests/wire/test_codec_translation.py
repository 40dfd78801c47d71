"""Every reply of the fixtures, translated between all formats: streamed, in small chunks,
truncated, and complete.

Every folder of fixtures is a test. The files that begin with `client.`, `left.` and `dropped` are
written by `python -m tests.wire.golden_files` and reviewed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.events import Event, Fail, Failure
from gateway.core.formats import Format
from gateway.core.parts import Thinking
from gateway.core.prompt import Role
from gateway.core.reply import collect_reply, reply_events
from gateway.errors import ServiceUnavailable
from gateway.wire.registry import CODECS
from gateway.wire.stream.event_builder import encode_reply, with_estimated_usage
from gateway.wire.stream.translator import CrossFormatTranslator
from tests.support.cases import in_one_test
from tests.support.fixture_json import expected_file, from_json, read_events, to_json
from tests.support.formats.readers import check, check_body
from tests.support.grammar import assert_grammar
from tests.wire.golden_files import (
    CASES,
    METADATA,
    QUIRKS,
    answer,
    client,
    client_view,
    client_view_of_body,
    encode,
    error_for,
    files_of_reply,
    stream,
    visible,
    with_usage,
)
from tests.wire.stream_cases import (
    STREAMS,
    WITH_BODY,
    decode,
    frames_of,
    param_id,
    with_normalized_arguments,
)


def _name(value: object) -> str | None:
    if isinstance(value, Path) and value.is_dir():
        return value.name
    return param_id(value)


each_case = in_one_test("case", [*CASES, *QUIRKS], ids=_name)
each_client = pytest.mark.parametrize("to", list(Format), ids=lambda format: f"to_{format}")
each_stream = in_one_test(("format", "path"), STREAMS, ids=param_id)
each_body = in_one_test(("format", "path"), WITH_BODY, ids=param_id)


@each_case
def test_client_streams_match_the_golden_files(case: Path) -> None:
    for path, content in files_of_reply(case):
        written = path.read_bytes() if path.exists() else None
        assert content == written, f"{path} is another one now: python -m tests.wire.golden_files"


@each_client
@each_case
def test_client_streams_obey_the_grammar(case: Path, to: Format) -> None:
    events = _events(case)
    fails = isinstance(events[-1], Fail)
    raw, _ = stream(events, to)
    check(to, raw, errored=fails, include_usage=True)
    assert visible(decode(CODECS[to].decoder(), raw)) == client_view(case, to)
    if not fails:
        body, _ = answer(collect_reply(events), to)
        check_body(to, body)
        assert visible([*reply_events(CODECS[to].parse_reply(body))]) == client_view_of_body(
            case, to
        )


@each_case
def test_chat_clients_get_usage_where_requested(case: Path) -> None:
    events = _events(case)
    encoder = CODECS[Format.CHAT].encoder(client(Format.CHAT, include_usage=False), METADATA)
    fails = isinstance(events[-1], Fail)
    check(Format.CHAT, encode(encoder, events), errored=fails, include_usage=False)


@each_client
@each_stream
def test_every_format_is_translated_to_every_other(format: Format, path: Path, to: Format) -> None:
    raw = path.read_bytes()
    events = with_usage(decode(CODECS[format].decoder(), raw))
    expected, lost = stream(events, to)
    frames = [frame.raw for frame in frames_of([raw])]
    for pieces in ([raw], frames):
        crossed, translator = _cross(format, to, pieces)
        assert crossed == expected
        assert translator.dropped == lost
        assert translator.decode_error is None
    if isinstance(events[-1], Fail):
        assert (translator.failure, translator.end) == (events[-1].failure, None)
    else:
        assert translator.failure is None
        assert translator.end is not None
        assert translator.end.stop is events[-1].stop  # type: ignore[union-attr]  # it has ended
    own = path.with_name(f"client.{to}.sse")
    if own.exists() and format is not to and _expressed_by_all(path, format):
        assert expected == own.read_bytes(), "the upstream's own pockets show"


@pytest.mark.exhaustive
@each_client
@each_stream
def test_bytes_one_by_one_cross_like_frames(format: Format, path: Path, to: Format) -> None:
    raw = path.read_bytes()
    crossed, _ = _cross(format, to, [raw[at : at + 1] for at in range(len(raw))])
    assert crossed == _cross(format, to, [raw])[0]


@pytest.mark.exhaustive
@each_client
@each_stream
def test_truncated_streams_fail(format: Format, path: Path, to: Format) -> None:
    frames = [frame.raw for frame in frames_of([path.read_bytes()])]
    for stop in range(len(frames)):
        crossed, translator = _cross(format, to, frames[:stop])
        check(to, crossed, errored=translator.end is None, include_usage=True)
        assert (translator.failure is None) == (translator.end is not None)


@each_client
@each_body
def test_complete_replies_are_translated_like_streams(
    format: Format, path: Path, to: Format
) -> None:
    body = orjson.loads(path.with_suffix(".json").read_bytes())
    events = decode(CODECS[format].decoder(), path.read_bytes())
    if isinstance(events[-1], Fail):
        return
    reply = CODECS[format].parse_reply(body)
    whole, lost = answer(with_normalized_arguments(reply), to)
    assert (whole, lost) == answer(with_normalized_arguments(collect_reply(events)), to)
    output = encode_reply(
        with_estimated_usage(reply, METADATA.input_tokens), CODECS[to].encoder(client(to), METADATA)
    )
    check(to, output, include_usage=True)
    if reply.usage is not None:
        check_body(to, whole)
        encoded, _ = stream(events, to)
        twin, stream_twin = (
            collect_reply(decode(CODECS[to].decoder(), raw)) for raw in (output, encoded)
        )
        assert to_json(with_normalized_arguments(twin)) == to_json(
            with_normalized_arguments(stream_twin)
        )


@in_one_test("case", CASES, ids=_name)
def test_returned_reasoning_is_unchanged(case: Path) -> None:
    """Every signature returns in the client's next request, in order and unchanged."""
    events = _events(case)
    if isinstance(events[-1], Fail):
        return
    reply = collect_reply(events)
    thinking = [part for part in reply.parts if isinstance(part, Thinking)]
    for format in Format:
        body, _ = answer(reply, format)
        prompt = CODECS[format].parse_prompt(_round_trip(format, body))
        turns = [turn for turn in prompt.turns if turn.role is Role.ASSISTANT]
        back = [part for turn in turns for part in turn.parts if isinstance(part, Thinking)]
        for part in back:
            assert part.origin in (None, METADATA.origin)
            assert part.origin or _is_own(format, part) or _is_plain(format, part)
        assert to_json([replace(part, origin=None) for part in back]) == to_json(thinking)


def test_errors_before_the_first_event() -> None:
    for format, codec in CODECS.items():
        raw = codec.encoder(client(format), METADATA).encode_error(ServiceUnavailable("Not now."))
        check(format, raw, errored=True)
        (fail,) = decode(codec.decoder(), raw)
        assert isinstance(fail, Fail)
        assert fail.failure.message == "Not now."


def _events(case: Path) -> list[Event]:
    events: list[Event] = with_usage(from_json(read_events(case / "events.json")))
    assert_grammar(events)
    return events


def _cross(format: Format, to: Format, pieces: list[bytes]) -> tuple[bytes, CrossFormatTranslator]:
    """The client's bytes at the end of the upstream's, an error included."""
    encoder = CODECS[to].encoder(client(to), METADATA)
    translator = CrossFormatTranslator(
        CODECS[format].decoder(), encoder, input_tokens=METADATA.input_tokens
    )
    out = [translator.receive(piece) for piece in pieces]
    out.append(translator.close())
    if translator.end is None:
        failure = translator.failure
        assert isinstance(failure, Failure)
        out.append(translator.abort(error_for(Fail(failure))))
    return b"".join(out), translator


def _expressed_by_all(path: Path, format: Format) -> bool:
    """Whether the format expresses all of its case."""
    return expected_file(path, format).name == "events.json"


def _round_trip(format: Format, body: dict[str, Any]) -> dict[str, Any]:
    """The next request of a client that returns the complete reply."""
    fields = {"role": "user", "content": "And?"}
    match format:
        case Format.CHAT:
            again = [body["choices"][0]["message"]]
            return {"model": "m", "messages": [fields, *again, fields]}
        case Format.MESSAGES:
            again = [{"role": "assistant", "content": body["content"]}] if body["content"] else []
            return {"model": "m", "max_tokens": 9, "messages": [fields, *again, fields]}
        case Format.RESPONSES:
            return {"model": "m", "input": [fields, *body["output"], fields]}


def _is_own(format: Format, thinking: Thinking) -> bool:
    return thinking.signature is not None and thinking.signature.format is format


def _is_plain(format: Format, thinking: Thinking) -> bool:
    """Chat has unsigned reasoning as plain text."""
    return format is Format.CHAT and thinking.signature is None
