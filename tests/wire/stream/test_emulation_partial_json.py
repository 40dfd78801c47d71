"""Free text of custom tools in any JSON notation and any chunks."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.stream.emulation import CustomToolArgReader
from tests.wire.splits import splits


def read(*chunks: str) -> str:
    text = CustomToolArgReader()
    return "".join([*(text.add(piece) for piece in chunks), text.close()])


@given(st.text(), st.booleans(), st.sampled_from(["input", "content", "patch"]), st.data())
def test_any_text_in_any_notation_and_split(
    text: str, ascii: bool, key: str, data: st.DataObject
) -> None:
    notation = json.dumps(
        {key: text}, ensure_ascii=ascii, indent=data.draw(st.sampled_from([None, 1]))
    )
    assert read(notation) == text
    assert read(*data.draw(splits(notation))) == text
    assert read(*notation) == text


@given(st.text('{}"\\u:input dD8 0cf\n', max_size=40), st.data())
def test_output_does_not_depend_on_the_split(tail: str, data: st.DataObject) -> None:
    for json_text in (tail, '{"input":"' + tail):
        assert read(*data.draw(splits(json_text))) == read(json_text) == read(*json_text)
        read(json_text).encode()  # no lone surrogates


@pytest.mark.parametrize(
    ("json_text", "text"),
    [
        ('{"input":"*** Begin"}', "*** Begin"),
        (' {\n "input" : "a\\nb" }\n', "a\nb"),
        ('{"input":""}', ""),
        ('{"input":"a","more":1}', "a"),
        (r'{"input":"\ud83d\ude00\u00e9\/\"\\"}', '\U0001f600é/"\\'),
        (r'{"input":"\\ud83d"}', r"\ud83d"),
        (r'{"input":"\ud83d!\ude00"}', "\ufffd!\ufffd"),
        (r'{"input":"\ud83d\ud83d\ude00"}', "\ufffd\U0001f600"),
        (r'{"input":"\x\uZ"}', "xuZ"),
        ('{"input":"raw\nline\ttab"}', "raw\nline\ttab"),
        ('{"input":"cut of', "cut of"),
        ('{"input":"cut of\\', "cut of"),
        (r'{"input":"cut of\u00e', "cut of"),
        (r'{"input":"cut of\ud83d', "cut of"),
    ],
)
def test_wrapped_text(json_text: str, text: str) -> None:
    assert read(json_text) == text
    assert read(*json_text) == text


@pytest.mark.parametrize(
    "json_text",
    [
        "*** Begin Patch\n",
        '"a string"',
        '{"input":7}',
        '{"input":["ls"]}',
        '{"command":"ls"}',
        '{"in',
        " " * 300 + '{"input":"late"}',
        '{"long":"' + "x" * 1000 + '"}',
    ],
)
def test_unwrapped_text_comes_at_the_end(json_text: str) -> None:
    text = CustomToolArgReader()
    assert [text.add(piece) for piece in json_text] == [""] * len(json_text)
    assert text.close() == json_text


@pytest.mark.parametrize("json_text", ["", " ", "{}", "{ }\n"])
def test_empty_arguments(json_text: str) -> None:
    assert read(json_text) == ""


def test_text_streams() -> None:
    text = CustomToolArgReader()
    chunks = ['{"inp', 'ut":', '"a', "b", "\\", "nc", '"', "}"]
    assert [text.add(piece) for piece in chunks] == ["", "", "a", "b", "", "\nc", "", ""]


def test_long_texts_take_linear_time() -> None:
    text = CustomToolArgReader()
    text.add('{"input":"')
    piece = orjson.dumps("line\n" * 10).decode()[1:-1]
    assert sum(len(text.add(piece)) for _ in range(20_000)) == 1_000_000
