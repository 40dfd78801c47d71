"""Long base64 texts are cut out of a body and put back, and nothing else is."""

from __future__ import annotations

import base64
from mmap import mmap
from random import Random
from typing import Any

import orjson
import pytest

from gateway.core.buffers import Buffers
from gateway.wire.images.sources import image_size, parse_source, render_source
from gateway.wire.json.long_texts import MIN_LENGTH, LongText, LongTexts

TOKEN = "0123456789abcdef"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x04\x00\x00\x00\x03\x00\x08\x02\x00\x00\x00"
DATA = base64.b64encode(PNG + Random(1).randbytes(400_000)).decode()
OTHER = base64.b64encode(Random(2).randbytes(MIN_LENGTH)).decode()
URL = f"data:image/png;base64,{DATA}"


def message(*parts: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": [*parts]}]}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


PLACES = {
    "chat": message(image(URL)),
    "chat, a string": message({"type": "image_url", "image_url": URL}),
    "messages": message({"type": "image", "source": {"type": "base64", "data": DATA}}),
    "responses": {"input": [{"content": [{"type": "input_image", "image_url": URL}]}]},
    "file": message({"type": "file", "file": {"file_data": URL}}),
    "file without a type": message({"type": "input_file", "file_data": DATA}),
    "audio": message({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}),
    "tool result": message({"type": "tool_result", "content": [image(URL)]}),
    "tool output": {
        "input": [{"type": "x", "output": [{"type": "input_image", "image_url": URL}]}]
    },
    "screenshot": {"input": [{"output": {"type": "computer_screenshot", "image_url": URL}}]},
    "several": message(image(URL), image(f"data:image/jpeg;base64,{OTHER}"), image(URL)),
}
NOT_CUT = {
    "short": message(image(URL[:200_000])),
    "text": message({"type": "text", "text": DATA}),
    "no base64": message(image(URL[:-1000] + "*" + URL[-999:])),
    "escapes": message(image(URL[:-1000] + "\n" + URL[-999:])),
    "not ASCII": message(image(URL[:-1000] + "ä" + URL[-999:])),
    "no padding": message(image(URL.rstrip("=")[:-1])),
    "padding in the middle": message(image(URL + "==" + DATA)),
    "too much padding": message(image(URL.rstrip("=") + "====")),
    "a long name": message({DATA: "data"}),
    "a quoted member": message({"type": "text", "text": f'"data":"{DATA}"'}),
}
ELSEWHERE = {
    "metadata": {"metadata": {"data": DATA}} | message(),
    "arguments": message({"type": "tool_use", "input": {"type": "base64", "data": DATA}}),
    "another data": message({"type": "redacted_thinking", "data": DATA}),
    "an address": message(image(DATA)),
    "instructions": {"instructions": {"data": DATA}, "input": [{"content": []}]},
}


def cut(body: object) -> tuple[bytes, LongTexts]:
    raw = orjson.dumps(body)
    return raw, LongTexts(raw, TOKEN)


def joined(body: Buffers) -> bytes:
    assert len(body) == sum(map(len, body.pieces(100_000)))
    return b"".join(body.pieces(100_000))


@pytest.mark.parametrize("place", PLACES)
def test_what_is_cut_out_comes_back(place: str) -> None:
    raw, texts = cut(PLACES[place])
    assert texts
    assert len(texts.short) < 2000
    assert joined(texts.restore(texts.short)) == raw
    body = orjson.loads(texts.short)
    assert texts.attach(body)
    assert joined(texts.restore(orjson.dumps(body))) == raw


@pytest.mark.parametrize("indent", [None, orjson.OPT_INDENT_2])
def test_white_space(indent: int | None) -> None:
    raw = orjson.dumps(PLACES["several"], option=indent)
    texts = LongTexts(raw, TOKEN)
    assert len(texts) == 3
    assert joined(texts.restore(texts.short)) == raw


@pytest.mark.parametrize("case", NOT_CUT)
def test_other_texts_stay(case: str) -> None:
    assert not cut(NOT_CUT[case])[1]


@pytest.mark.parametrize("case", ELSEWHERE)
def test_texts_in_other_places_are_told(case: str) -> None:
    _, texts = cut(ELSEWHERE[case])
    assert texts
    assert not texts.attach(orjson.loads(texts.short))


def test_random_bodies_come_back() -> None:
    """Whatever the bytes are, and whatever holds them."""
    random = Random(3)
    pieces = [b'"', b'"data":', b'"url" : "', b'"data":"', DATA.encode(), URL.encode(), b"\\", b" "]
    pieces += [b"x" * 131_072, OTHER[:140_000].encode(), b"{", b'"}', b","]
    found = 0
    for _ in range(200):
        raw = b"".join(random.choices(pieces, k=random.randrange(30)))
        memory = mmap(-1, len(raw) + 1)
        memory[: len(raw)] = raw
        memory.resize(len(raw) or 1)
        for body in (raw, bytearray(raw), memory):
            if len(body) == len(raw) and (texts := LongTexts(body, TOKEN)):
                found += 1
                assert joined(texts.restore(texts.short)) == raw
    assert found > 10


def test_a_long_text_is_measured_and_sliced_as_a_whole() -> None:
    _, texts = cut(PLACES["chat"])
    body = orjson.loads(texts.short)
    texts.attach(body)
    url = body["messages"][0]["content"][0]["image_url"]["url"]
    assert isinstance(url, LongText)
    assert len(str.__str__(url)) < 200
    assert (len(url), url[:30], url[-4:], url[5]) == (len(URL), URL[:30], URL[-4:], URL[5])
    assert url[:] == URL
    source = parse_source(url)
    assert source.data is not None
    assert (source.media_type, len(source.data), source.data[:]) == ("image/png", len(DATA), DATA)
    assert source.data.startswith(DATA[:20])
    assert source.data.endswith(DATA[-4:])
    assert source.data.isascii()
    assert image_size(source.data) == (1024, 768)
    rendered = orjson.dumps(render_source(source))
    assert joined(texts.restore(rendered)) == orjson.dumps(URL)


def test_a_placeholder_is_no_base64() -> None:
    """What reads one by mistake fails, instead of reading something else."""
    _, texts = cut(PLACES["messages"])
    body = orjson.loads(texts.short)
    with pytest.raises(ValueError, match="ASCII"):
        base64.b64decode(body["messages"][0]["content"][0]["source"]["data"])


def test_a_placeholder_of_another_token_is_text() -> None:
    _, texts = cut(PLACES["chat"])
    foreign = LongTexts(orjson.dumps(PLACES["messages"]), TOKEN[::-1])
    assert joined(texts.restore(foreign.short)) == foreign.short
