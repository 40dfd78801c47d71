"""What a chat client gets of the upstream's frames. Names and failures: `test_codecs.py`."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from gateway.core.formats import Format
from gateway.wire.chat.native import ChatRewriter
from gateway.wire.sse import Frame
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
