"""Recognised frames are sent exactly as decoded ones."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.wire.registry import CODECS
from gateway.wire.stream.frame_template import FrameTemplate
from gateway.wire.stream.native_translator import NativeTranslator
from gateway.wire.stream.sse import read_frame
from tests.support.hypothesis_profiles import examples
from tests.wire.stream_cases import prompt

HEAD, TAIL = b'data: {"model":"up","text":"', b'","n":1}\n\n'
NEW_HEAD = b'data: {"model":"shown","text":"'


def taught() -> FrameTemplate:
    likeness = FrameTemplate()
    likeness.learn(HEAD + b"Hello" + TAIL, NEW_HEAD + b"Hello" + TAIL, "Hello")
    return likeness


def rewrite(likeness: FrameTemplate, frames: bytes) -> tuple[int, bytes] | None:
    return (
        edited(likeness, frames, likeness.match_run(frames, 0))
        if likeness.matches(frames, 0)
        else None
    )


def rewrite_one(likeness: FrameTemplate, frames: bytes) -> tuple[int, bytes] | None:
    return edited(likeness, frames, likeness.match_one(frames, 0))


def edited(
    likeness: FrameTemplate, frames: bytes, run: tuple[int, list[bytes]] | None
) -> tuple[int, bytes] | None:
    return run and (run[0], likeness.apply(frames, 0, *run))


def test_matching_frames_are_edited_like_the_template() -> None:
    frame = HEAD + b" w\\u00f6rld " + TAIL
    assert rewrite(taught(), frame) == (len(frame), NEW_HEAD + b" w\\u00f6rld " + TAIL)


def test_runs_are_edited_in_one_step() -> None:
    texts = [b"a", b"", b" b", b"c\\n"]
    run = b"".join(HEAD + text + TAIL for text in texts)
    new = b"".join(NEW_HEAD + text + TAIL for text in texts)
    assert rewrite(taught(), run + b"data: [DONE]\n\n") == (len(run), new)
    other = HEAD.replace(b"up", b"down") + b"x" + TAIL
    assert rewrite(taught(), run + other + run) == (len(run), new)
    assert rewrite_one(taught(), run + other) == (len(HEAD + b"a" + TAIL), NEW_HEAD + b"a" + TAIL)


def test_ambiguous_frames_do_not_match() -> None:
    likeness = taught()
    for text in (b'a","b":"c', b"a\\", b"a\nb"):
        assert rewrite(likeness, HEAD + text + TAIL) is None
        assert rewrite_one(likeness, HEAD + text + TAIL) is None
    assert rewrite(likeness, b"data: [DONE]\n\n") is None
    likeness.reset()
    assert rewrite(likeness, HEAD + b"world" + TAIL) is None


def test_texts_that_occur_twice_are_not_learned() -> None:
    likeness = FrameTemplate()
    likeness.learn(HEAD + b"up" + TAIL, HEAD + b"up" + TAIL, "up")
    assert rewrite(likeness, HEAD + b"world" + TAIL) is None


def numbered(number: int, text: bytes, model: bytes = b"up") -> bytes:
    around = (
        b'event: said\ndata: {"type":"said","sequence_number":%d,"model":"%b","delta":"%b"'
        b',"obfuscation":"%b"}\n\n'
    )
    return around % (number, model, text, b"x" * (number % 7))


def test_volatile_fields_may_differ() -> None:
    likeness = FrameTemplate()
    raw = numbered(9, b"Hello")
    assert likeness.learn(raw, numbered(9, b"Hello", b"shown"), "Hello")
    texts = [b" a", b"b", rb"\",\"sequence_number\":7", b"", b"c"]
    run = b"".join(numbered(at, text) for at, text in enumerate(texts, 99))
    new = b"".join(numbered(at, text, b"shown") for at, text in enumerate(texts, 99))
    begun = b"".join(numbered(at, text, b"shown") for at, text in enumerate(texts[:2], 99))
    assert rewrite(likeness, run) == (len(begun) - 2 * 3, begun), "up to a quote in a text"
    texts[2] = b"\\n"
    run = b"".join(numbered(at, text) for at, text in enumerate(texts, 99))
    new = b"".join(numbered(at, text, b"shown") for at, text in enumerate(texts, 99))
    assert likeness.match_run(run, 0) == (len(run), texts)
    assert rewrite(likeness, run) == (len(run), new)
    more = run + b"data: [DONE]\n\n"
    assert rewrite(likeness, more) == (len(run), new)
    assert rewrite_one(likeness, more) == (len(numbered(99, b" a")), numbered(99, b" a", b"shown"))
    assert rewrite(likeness, numbered(1, b"x", b"other")) is None


def test_single_frames_match_like_runs() -> None:
    for number, template in ((None, taught()), (9, FrameTemplate())):
        if number is not None:
            template.learn(numbered(9, b"Hello"), numbered(9, b"Hello", b"shown"), "Hello")
        for text in (b"", b" w\xc3\xb6rld", b"\\n", b'a","b":"c', b"a\\", b"a\nb", b"a\x07"):
            frame = HEAD + text + TAIL if number is None else numbered(12, text)
            alone, among = template.match_chunk(frame), template.match_one(frame, 0)
            plain = not text.strip(b" w\xc3\xb6rld")
            assert alone == (text if plain else None)
            assert alone is None or among == (len(frame), [alone])
            for more in (frame, b"data: [DONE]\n\n", b"data: ", b"\n"):
                assert template.match_chunk(frame + more) is None
            assert template.match_chunk(frame[:-1]) is None
        template.reset()
        assert template.match_chunk(HEAD + b"x" + TAIL) is None
        assert template.match_chunk(numbered(12, b"x")) is None


def test_ambiguous_edits_are_not_learned() -> None:
    """What is edited has to stand once and to have a quote that no text can have."""
    likeness = FrameTemplate()
    twice = b'data: {"model":"up","and":{"model":"up"},"text":"'
    new = twice.replace(b'"model":"up"', b'"model":"shown"', 1)
    assert not likeness.learn(twice + b"Hello" + TAIL, new + b"Hello" + TAIL, "Hello")
    assert likeness.learn(HEAD + b"Hello" + TAIL, NEW_HEAD + b"Hello" + b'"}\n\n', "Hello")
    assert rewrite(likeness, HEAD + b"x" + TAIL) == (len(HEAD + b"x" + TAIL), NEW_HEAD + b'x"}\n\n')


CHUNK = {
    "id": "r",
    "object": "chat.completion.chunk",
    "model": "upstream-model",
    "choices": [{"index": 0, "delta": {}, "finish_reason": None}],
    "usage": None,
}
DELTAS = st.one_of(
    st.builds(lambda text: {"content": text}, st.text(max_size=12)),
    st.builds(lambda text: {"content": text}, st.sampled_from(["Hello", " world", "content"])),
    st.builds(lambda text: {"reasoning_content": text}, st.text('ab \\"\n', max_size=6)),
    st.builds(
        lambda text: {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": text}}]},
        st.text('a{}":\\', max_size=6),
    ),
)


@examples(4)
@given(deltas=st.lists(DELTAS, max_size=12), include_usage=st.booleans(), cut=st.integers(0, 13))
def test_output_does_not_depend_on_the_template(
    deltas: list[dict[str, object]], include_usage: bool, cut: int
) -> None:
    codec = CODECS[Format.CHAT]
    request = prompt(Format.CHAT, "shown", include_usage=include_usage)
    translator = NativeTranslator(codec.decoder(), codec.rewriter(request), lambda text: text)
    plain = codec.rewriter(request)
    sent, expected = [], []
    for delta in [{"content": "Hi"}, *deltas]:
        chunk = CHUNK | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        raw = b"data: %b\n\n" % orjson.dumps(chunk)
        sent.append(raw)
        expected.append(plain.rewrite(read_frame(raw), chunk))
    got = [translator.receive(raw) for raw in sent[:cut]] + [
        translator.receive(b"".join(sent[cut:]))
    ]
    assert b"".join(got) == b"".join(expected)
    assert translator.decode_error is None


def test_texts_like_an_edit_are_kept() -> None:
    likeness = FrameTemplate()
    raw = numbered(9, b"Hello")
    assert likeness.learn(raw, numbered(9, b"Hello", b"shown"), "Hello")
    assert rewrite(likeness, numbered(10, b"up and on")) == (
        len(numbered(10, b"up and on")),
        numbered(10, b"up and on", b"shown"),
    )
