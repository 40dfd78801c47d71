"""Free text of custom tools in any JSON notation and any chunks."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.partial_json import CustomToolArgReader
from tests.wire.splits import splits


def read(*pieces: str) -> str:
    text = CustomToolArgReader()
    return "".join([*(text.add(piece) for piece in pieces), text.close()])


@given(st.text(), st.booleans(), st.sampled_from(["input", "content", "patch"]), st.data())
def test_any_text_in_any_notation_and_split(
    text: str, ascii: bool, key: str, data: st.DataObject
) -> None:
    spelling = json.dumps(
        {key: text}, ensure_ascii=ascii, indent=data.draw(st.sampled_from([None, 1]))
    )
    assert read(spelling) == text
    assert read(*data.draw(splits(spelling))) == text
    assert read(*spelling) == text


@given(st.text('{}"\\u:input dD8 0cf\n', max_size=40), st.data())
def test_output_does_not_depend_on_the_split(tail: str, data: st.DataObject) -> None:
    for written in (tail, '{"input":"' + tail):
        assert read(*data.draw(splits(written))) == read(written) == read(*written)
        read(written).encode()  # no lone surrogates


@pytest.mark.parametrize(
    ("written", "text"),
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
def test_wrapped_text(written: str, text: str) -> None:
    assert read(written) == text
    assert read(*written) == text


@pytest.mark.parametrize(
    "written",
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
def test_unwrapped_text_comes_at_the_end(written: str) -> None:
    text = CustomToolArgReader()
    assert [text.add(piece) for piece in written] == [""] * len(written)
    assert text.close() == written


@pytest.mark.parametrize("written", ["", " ", "{}", "{ }\n"])
def test_empty_arguments(written: str) -> None:
    assert read(written) == ""


def test_text_streams() -> None:
    text = CustomToolArgReader()
    pieces = ['{"inp', 'ut":', '"a', "b", "\\", "nc", '"', "}"]
    assert [text.add(piece) for piece in pieces] == ["", "", "a", "b", "", "\nc", "", ""]


def test_long_texts_take_linear_time() -> None:
    text = CustomToolArgReader()
    text.add('{"input":"')
    piece = orjson.dumps("line\n" * 10).decode()[1:-1]
    assert sum(len(text.add(piece)) for _ in range(20_000)) == 1_000_000
