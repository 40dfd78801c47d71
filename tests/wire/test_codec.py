"""Every codec with every fixture: decoding of streams and bodies, and the bytes for clients.

Every folder of fixtures is a test.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Fail, FailureKind, Ping
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import ReplyFailed, collect_reply
from gateway.core.target import Target
from gateway.errors import InvalidRequest, ServiceUnavailable, TooManyRequests
from gateway.wire.registry import CODECS
from gateway.wire.stream.native_translator import NativeTranslator
from gateway.wire.stream.sse import Frame
from gateway.wire.upstream_errors import parse_http_error
from tests.support.cases import in_one_test
from tests.support.fixture_json import expected_file, read_events, to_json
from tests.support.grammar import assert_grammar
from tests.support.hypothesis_profiles import examples
from tests.wire.stream_cases import (
    JSON,
    PROMPTS,
    STREAMS,
    UPSTREAM_MODEL,
    damaged_json,
    decode,
    decode_frames,
    frames_of,
    param_id,
    prompt,
    with_normalized_arguments,
)

ANOTHER = Target(model="another-model")
CLIENT_MODEL = 'the-model/that "was" asked för'
each_stream = in_one_test(("format", "path"), STREAMS, ids=param_id)
each_format = pytest.mark.parametrize("format", list(Format), ids=param_id)


def test_every_format_has_a_codec() -> None:
    assert set(CODECS) == set(Format)
    assert all(codec.format is format for format, codec in CODECS.items())


@each_format
def test_every_format_has_its_fixtures(format: Format) -> None:
    paths = [path for owner, path in STREAMS if owner is format]
    assert len([path for path in paths if path.name == f"{format}.sse"]) >= 10
    assert len([path for path in paths if path.name == "upstream.sse"]) >= 6


@each_stream
def test_decodes_to_the_expected_events(format: Format, path: Path) -> None:
    raw = path.read_bytes()
    decoded = read_events(expected_file(path, format))
    events = decode(CODECS[format].decoder(), raw)
    assert_grammar(events)
    assert to_json(events) == decoded
    single = [raw[position : position + 1] for position in range(len(raw))]
    assert to_json(decode(CODECS[format].decoder(), *single)) == decoded
    framewise = [frame.raw for frame in frames_of([raw])]
    assert to_json(decode(CODECS[format].decoder(), *framewise)) == decoded


@each_stream
def test_events_obey_the_grammar_for_any_split(format: Format, path: Path) -> None:
    frames = frames_of([path.read_bytes()])
    for stop in range(len(frames)):
        events = list(decode_frames(CODECS[format].decoder(), frames[:stop]))
        assert_grammar(events)


COMPLETE = [(format, path) for format, path in STREAMS if path.with_suffix(".json").exists()]


@in_one_test(("format", "path"), COMPLETE, ids=param_id)
def test_complete_and_collected_replies_are_equal(format: Format, path: Path) -> None:
    codec = CODECS[format]
    body = orjson.loads(path.with_suffix(".json").read_bytes())
    events = decode(codec.decoder(), path.read_bytes())
    if isinstance(events[-1], Fail):
        with pytest.raises(ReplyFailed) as failed:
            codec.parse_reply(body)
        assert to_json(failed.value.failure) == to_json(events[-1].failure)
    else:
        assert to_json(with_normalized_arguments(codec.parse_reply(body))) == to_json(
            with_normalized_arguments(collect_reply(events))
        )


@in_one_test(("format", "path"), COMPLETE, ids=param_id)
def test_renamed_bodies_differ_only_in_the_model(format: Format, path: Path) -> None:
    codec, raw = CODECS[format], path.with_suffix(".json").read_bytes()
    body = orjson.loads(raw)
    assert codec.patch_reply(raw, body, prompt(format, UPSTREAM_MODEL)) == raw
    assert codec.patch_reply(raw, body, prompt(format, CLIENT_MODEL)) == _renamed(raw)


@each_format
def test_error_bodies_are_no_replies(format: Format) -> None:
    with pytest.raises(ReplyFailed) as failed:
        CODECS[format].parse_reply({"error": {"message": "no", "type": "server_error"}})
    assert failed.value.failure.message == "no"
    with pytest.raises(ReplyFailed):
        CODECS[format].parse_reply({})


@each_stream
def test_native_streams_differ_only_in_the_model(format: Format, path: Path) -> None:
    frames = frames_of([path.read_bytes()])
    for name in (UPSTREAM_MODEL, CLIENT_MODEL):
        relayed, translator = _relay(prompt(format, name), frames)
        if not translator.started:
            assert relayed == b""
            continue
        expected = _until_failure(format, frames)
        got = frames_of([relayed])
        assert len(got) == len(expected)
        for before, after in zip(expected, got, strict=True):
            _assert_relayed(before, after, renamed=name == CLIENT_MODEL)


@each_stream
def test_output_does_not_depend_on_the_split(format: Format, path: Path) -> None:
    raw = path.read_bytes()
    whole, _ = _relay(prompt(format, CLIENT_MODEL), frames_of([raw]))
    for size in (1, 7, 1000):
        codec = CODECS[format]
        translator = NativeTranslator(
            codec.decoder(), codec.rewriter(prompt(format, CLIENT_MODEL)), lambda text: text
        )
        chunks = [raw[start : start + size] for start in range(0, len(raw), size)]
        assert b"".join([*map(translator.receive, chunks), translator.close()]) == whole


@each_stream
def test_abort_writes_the_error_of_the_format(format: Format, path: Path) -> None:
    """What `abort` adds is understood by the format's own decoder, wherever it comes."""
    frames = frames_of([path.read_bytes()])
    for stop in range(len(frames)):
        relayed, translator = _relay(prompt(format, CLIENT_MODEL), frames[:stop], close=False)
        if translator.end or translator.failure:
            break
        encoded = translator.abort(TooManyRequests())
        last = decode(CODECS[format].decoder(), relayed + encoded)[-1]
        assert isinstance(last, Fail)
        assert last.failure.kind is FailureKind.RESPONSE
        assert last.failure.message == "Too Many Requests"
        assert last.failure.status == 429


@each_format
def test_pings_decode_to_nothing(format: Format) -> None:
    codec = CODECS[format]
    ping = codec.rewriter(prompt(format, CLIENT_MODEL)).ping()
    assert ping.endswith(b"\n\n")
    for frame in frames_of([ping]):
        if frame.data:
            events = codec.decoder().decode(frame.name, orjson.loads(frame.data))
            assert all(isinstance(event, Ping) for event in events)


@each_format
def test_errors_have_the_envelope_of_the_format(format: Format) -> None:
    body = CODECS[format].render_error(ServiceUnavailable("try later"), "req_1")
    error = orjson.loads(body)["error"]
    assert error["message"] == "try later"
    failure = parse_http_error(503, {"retry-after": "5"}, body)
    assert (failure.status, failure.message, failure.retry_after) == (503, "try later", 5.0)


@cache
def _frames(path: Path) -> list[Frame]:
    return [frame for frame in frames_of([path.read_bytes()]) if frame.data]


@examples(10)
@given(st.data())
def test_the_grammar_holds_for_frames_in_any_order(data: st.DataObject) -> None:
    """Frames of several streams of a format: lost, repeated and out of order."""
    format = data.draw(st.sampled_from(list(Format)))
    paths = data.draw(st.lists(st.sampled_from(_of(format)), min_size=1, max_size=2))
    frames = [frame for path in paths for frame in _frames(path)]
    picked = data.draw(st.lists(st.sampled_from(frames), max_size=30)) if frames else []
    assert_grammar(list(decode_frames(CODECS[format].decoder(), picked)))


@examples(10)
@given(st.data())
def test_the_grammar_holds_for_damaged_frames(data: st.DataObject) -> None:
    format, path = data.draw(st.sampled_from([item for item in STREAMS if _frames(item[1])]))
    frames = _frames(path)
    victim = data.draw(st.sampled_from(frames))
    if victim.data == b"[DONE]":
        return
    broken = data.draw(damaged_json(orjson.loads(victim.data or b"")))
    if isinstance(broken, dict):
        decoder = CODECS[format].decoder()
        rewriter = CODECS[format].rewriter(prompt(format, CLIENT_MODEL, include_usage=False))
        whole = Frame(b"data: %b\n\n" % _dumps(broken), victim.name, _dumps(broken))
        rewriter.rewrite(whole, broken)
        swapped = [whole if frame is victim else frame for frame in frames]
        assert_grammar(list(decode_frames(decoder, swapped)))


@examples(10)
@given(st.data())
def test_damaged_prompts_raise_only_invalid_request(data: st.DataObject) -> None:
    format, path = data.draw(st.sampled_from(PROMPTS))
    body = data.draw(damaged_json(_body(path)))
    if data.draw(st.booleans()) and isinstance(body, dict):
        body = data.draw(damaged_json(body))
    _assert_parsed_or_refused(format, body)


@examples(3)
@given(format=st.sampled_from(list(Format)), body=JSON, text=st.text(max_size=5))
def test_any_json_raises_only_invalid_request(format: Format, body: Any, text: str) -> None:
    _assert_parsed_or_refused(format, body)
    for field in ("messages", "input"):
        _assert_parsed_or_refused(format, {"model": text, "max_tokens": 1, field: body})


@in_one_test(("format", "path"), PROMPTS, ids=param_id)
def test_valid_prompts_parse_and_are_patched_in_a_copy(format: Format, path: Path) -> None:
    body = _body(path)
    before = orjson.dumps(body)
    parsed = CODECS[format].parse_prompt(body)
    patched = CODECS[format].patch_prompt(body, parsed, ANOTHER)
    assert parsed.format is format
    assert parsed.model == body["model"]
    assert patched["model"] == "another-model"
    assert orjson.dumps(body) == before
    changed = {"model", "stream_options"}
    if format is Format.RESPONSES:
        changed |= {"store", "include"}
        if b'"id":' in before:  # upstreams store nothing
            changed |= {"input"}
    if b"gw1." in before:  # reasoning that came back is restored, or taken out
        changed |= {"messages", "input", "thinking"}
    assert {key for key in patched if patched[key] != body.get(key)} <= changed
    with pytest.raises(InvalidRequest) as refused:
        CODECS[format].parse_prompt(body | {"model": None})
    assert refused.value.message == "model: Field required"


@each_format
def test_model_ids_have_a_maximum_length(format: Format) -> None:
    path = next(path for owner, path in PROMPTS if owner is format)
    body = _body(path)
    assert CODECS[format].parse_prompt(body | {"model": "m" * 256}).model == "m" * 256
    with pytest.raises(InvalidRequest) as refused:
        CODECS[format].parse_prompt(body | {"model": "m" * 257})
    assert refused.value.message == "model: String should have at most 256 characters"
    assert (refused.value.status, refused.value.param) == (400, "model")


def _assert_parsed_or_refused(format: Format, body: Any) -> None:
    try:
        parsed = CODECS[format].parse_prompt(body)
    except InvalidRequest as refused:
        assert refused.status == 400
        assert refused.param
        assert refused.message
    else:
        hash(parsed.model)
        assert CODECS[format].patch_prompt(body, parsed, ANOTHER)["model"] == "another-model"


def _body(path: Path) -> Any:
    return orjson.loads(path.read_bytes())


def _of(format: Format) -> list[Path]:
    return [path for owner, path in STREAMS if owner is format]


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def _relay(
    request: Prompt, frames: list[Frame], *, close: bool = True
) -> tuple[bytes, NativeTranslator]:
    codec = CODECS[request.format]
    translator = NativeTranslator(codec.decoder(), codec.rewriter(request), lambda text: text)
    out = [translator.receive(frame.raw) for frame in frames]
    return b"".join([*out, translator.close() if close else b""]), translator


def _until_failure(format: Format, frames: list[Frame]) -> list[Frame]:
    """The frames that a client may get: nothing follows an error."""
    decoder = CODECS[format].decoder()
    for position, frame in enumerate(frames):
        data = orjson.loads(frame.data) if frame.data and frame.data != b"[DONE]" else None
        if isinstance(data, dict):
            events = decoder.decode(frame.name, data)
            if any(isinstance(event, Fail) for event in events):
                return frames[: position + 1]
    return frames


def _assert_relayed(before: Frame, after: Frame, *, renamed: bool) -> None:
    assert before.data is None or after.data is not None
    if not before.name and after.name:  # the one line that the messages room adds
        named = orjson.loads(after.data or b"").get("type", "error")
        assert named == after.name.decode()
        after = after._replace(raw=after.raw.replace(b"event: %b\n" % after.name, b"", 1))
    spread = before.data is not None and before.data not in before.raw
    if renamed and spread and UPSTREAM_MODEL.encode() in before.raw:
        assert orjson.loads(after.data or b"") == orjson.loads(_renamed(before.data or b""))
    elif not before.raw.endswith((b"\n\n", b"\r\n\r\n")):
        assert after.raw.rstrip() == (_renamed(before.raw) if renamed else before.raw).rstrip()
    else:
        assert after.raw == (_renamed(before.raw) if renamed else before.raw)


def _renamed(raw: bytes) -> bytes:
    return raw.replace(orjson.dumps(UPSTREAM_MODEL), orjson.dumps(CLIENT_MODEL))


@pytest.mark.parametrize("upstream", [Format.CHAT, Format.RESPONSES])
@pytest.mark.parametrize("client", [Format.CHAT, Format.RESPONSES])
def test_upstreams_store_only_what_chat_clients_ask_them_to(
    client: Format, upstream: Format
) -> None:
    user = {"role": "user", "content": "Hi"}
    fields = {"messages": [user]} if client is Format.CHAT else {"input": [user]}
    body = {"model": "m", "store": True} | fields
    asked, codec = CODECS[client].parse_prompt(body), CODECS[upstream]
    sent = [codec.render_prompt(asked, ANOTHER).body]
    if client is upstream:
        sent.append(codec.patch_prompt(body, asked, ANOTHER))
    is_asked = client is upstream is Format.CHAT
    assert all((each.get("store") is True) is is_asked for each in sent)
