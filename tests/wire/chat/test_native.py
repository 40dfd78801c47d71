"""What a chat client gets of the upstream's frames. Names and failures: `test_codecs.py`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.prompt import OutputFormat, OutputKind, Prompt
from gateway.core.value import replace
from gateway.wire.chat.decode import ChatDecoder
from gateway.wire.chat.native import ChatRewriter, patch_reply
from gateway.wire.stream.native_translator import NativeTranslator
from gateway.wire.stream.sse import Frame
from tests.support.cases import in_one_test
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import UPSTREAM_MODEL, frames_of, param_id, prompt, stream_files


def rewritten(payload: bytes, *, include_usage: bool = False) -> bytes:
    rewriter = ChatRewriter(prompt(Format.CHAT, "shown", include_usage=include_usage))
    frame = Frame(b"data: %b\n\n" % payload, b"", payload)
    return rewriter.rewrite(frame, orjson.loads(payload))


def test_usage_is_removed_when_not_requested() -> None:
    raw = (FIXTURES / "streams" / "text" / "chat.sse").read_bytes()
    rewriter = ChatRewriter(prompt(Format.CHAT, UPSTREAM_MODEL, include_usage=False))
    frames = frames_of([raw])
    out = b"".join(
        rewriter.rewrite(frame, None if b"[DONE]" in frame.raw else orjson.loads(frame.data or b""))
        for frame in frames
    )
    kept = [frame.raw for frame in frames if b'"choices":[]' not in frame.raw]
    assert out == b"".join(kept).replace(b',"usage":null', b"")
    assert b"usage" not in out
    assert out.endswith(b"data: [DONE]\n\n")


@in_one_test("path", stream_files(Format.CHAT), ids=param_id)
def test_chunks_without_usage_are_unchanged(path: Path) -> None:
    """Whatever the dialect: parsed chunks differ by the usage alone."""
    rewriter = ChatRewriter(prompt(Format.CHAT, UPSTREAM_MODEL, include_usage=False))
    for frame in frames_of([path.read_bytes()]):
        if not frame.data or frame.data == b"[DONE]":
            assert rewriter.rewrite(frame, None) == frame.raw
            continue
        chunk = orjson.loads(frame.data)
        after = rewriter.rewrite(frame, chunk)
        if not after:
            assert chunk["usage"]
            assert not chunk["choices"]
        else:
            (got,) = frames_of([after])
            left = {k: v for k, v in chunk.items() if k != "usage" or v is not None}
            assert orjson.loads(got.data or b"") == left


@pytest.mark.parametrize(
    ("payload", "left"),
    [
        (b'{"usage":null,"choices":[1]}', b'{"choices":[1]}'),
        (b'{"choices":[1], "usage" : null }', b'{"choices":[1] }'),
        (b'{"a":1,"usage":null,"b":2}', b'{"a":1,"b":2}'),
        (b'{"a":",\\"usage\\":null","usage":null}', b'{"a":",\\"usage\\":null"}'),
    ],
)
def test_null_usage_is_removed(payload: bytes, left: bytes) -> None:
    assert rewritten(payload) == b"data: %b\n\n" % left
    assert rewritten(payload, include_usage=True) == b"data: %b\n\n" % payload


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[{"usage":null,"x":1}],"usage":null}',
        b'{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}',
        b'{"choices":[{"usage":null,"x":1}]}',
        b'{"error":{"message":"no"},"usage":{"prompt_tokens":1}}',
    ],
)
def test_ambiguous_usage_is_kept(payload: bytes) -> None:
    assert rewritten(payload) == b"data: %b\n\n" % payload


def test_both_edits_keep_line_endings() -> None:
    payload = b'{"model":"up","choices":[1],"usage":null}'
    frame = Frame(b": hm\r\ndata: %b\r\n\r\n" % payload, b"", payload)
    rewriter = ChatRewriter(prompt(Format.CHAT, "shown", include_usage=False))
    assert (
        rewriter.rewrite(frame, orjson.loads(payload))
        == b': hm\r\ndata: {"model":"shown","choices":[1]}\r\n\r\n'
    )


JSON = OutputFormat(kind=OutputKind.JSON_OBJECT)
JSON_PROMPT = replace(prompt(Format.CHAT, "shown"), output=JSON)
FENCED = '```json\n{"a": [1, "```"]}\n```\n'
BARE = '{"a": [1, "```"]}'


def chunk(index: int, content: str | None, finish_reason: str | None = None) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason, "x": 1}
    return {"id": "c", "model": UPSTREAM_MODEL, "choices": [choice]}


def native_stream(chunks: list[dict[str, Any]], prompt: Prompt) -> bytes:
    """What the client gets of the chunks, one at a time."""
    translator = NativeTranslator(ChatDecoder(), ChatRewriter(prompt), str)
    frames = [*map(orjson.dumps, chunks), b"[DONE]"]
    return b"".join(translator.receive(b"data: %b\n\n" % frame) for frame in frames)


def texts(out: bytes) -> dict[int, str]:
    """By choice."""
    received: dict[int, str] = defaultdict(str)
    for frame in frames_of([out]):
        if frame.data and frame.data != b"[DONE]":
            (choice,) = orjson.loads(frame.data)["choices"]
            assert choice["x"] == 1, "unknown fields stay"
            received[choice["index"]] += choice["delta"].get("content") or ""
    return received


@given(st.data())
def test_code_fences_around_json_are_removed_in_streams(data: st.DataObject) -> None:
    """Of each choice, wherever the pieces are cut."""
    chunks: list[dict[str, Any]] = []
    answers = {0: FENCED, 1: BARE, 2: FENCED}
    rest = dict(answers)
    while rest:
        index = data.draw(st.sampled_from(sorted(rest)))
        size = data.draw(st.integers(1, 12))
        chunks.append(chunk(index, rest[index][:size]))
        rest[index] = rest[index][size:]
        if not rest[index]:
            del rest[index]
            chunks.append(chunk(index, None, "stop"))
    out = native_stream(chunks, JSON_PROMPT)
    assert texts(out) == dict.fromkeys(answers, BARE)
    assert out.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(("text", "expected"), [(FENCED, BARE), ("```{", "```{"), (BARE, BARE)])
def test_texts_without_a_finish_reason_arrive(text: str, expected: str) -> None:
    chunks = [chunk(0, piece) for piece in text]
    *frames, last = frames_of([native_stream(chunks, JSON_PROMPT)])
    deltas = [orjson.loads(each.data or b"")["choices"][0]["delta"] for each in frames]
    assert last.data == b"[DONE]"
    assert "".join(delta.get("content") or "" for delta in deltas) == expected


def test_bare_json_is_streamed_as_it_comes() -> None:
    chunks = [chunk(0, piece) for piece in ("{", '"a": ', "1", "2" * 3, "}")]
    chunks.append(chunk(0, None, "stop"))
    assert native_stream(chunks, JSON_PROMPT) == native_stream(chunks, prompt(Format.CHAT, "shown"))


def test_without_a_response_format_fences_stay() -> None:
    out = native_stream([chunk(0, FENCED), chunk(0, None, "stop")], prompt(Format.CHAT, "shown"))
    assert texts(out) == {0: FENCED}


def test_code_fences_around_json_are_removed_of_complete_replies() -> None:
    message = {"role": "assistant", "content": FENCED, "x": 1}
    body = {"model": UPSTREAM_MODEL, "choices": [{"index": 0, "message": message}], "y": 2}
    patched = orjson.loads(patch_reply(orjson.dumps(body), body, JSON_PROMPT))
    choice = {"index": 0, "message": message | {"content": BARE}}
    assert patched == {"model": "shown", "choices": [choice], "y": 2}
    raw = b'{"model": "shown", "choices": [{"message": {"content": null}}]}'
    assert patch_reply(raw, orjson.loads(raw), JSON_PROMPT) is raw
