"""Reasoning in chat messages: how it comes apart, what goes upstream, what clients are given."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Thinking
from gateway.core.target import Target
from gateway.wire.chat.reasoning import (
    merge_details,
    parse_reasoning,
    render_details,
    render_reasoning,
)
from gateway.wire.prompt.signatures import wrap

HERE = Target(model="m", origin="here")
SIGNED = ProviderData(Format.MESSAGES, "c2ln")
ENCRYPTED = ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "ZW5j"})
OWN = ProviderData(Format.CHAT, [{"type": "reasoning.encrypted", "index": 0, "data": "own"}])


def text(signature: ProviderData | None, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "index": 0, "signature": wrap(signature, "here")} | more


def encrypted(signature: ProviderData) -> dict[str, Any]:
    packed = wrap(signature, "here", redacted=True)
    return {"type": "reasoning.encrypted", "index": 1, "data": packed}


@pytest.mark.parametrize(
    ("message", "thoughts"),
    [
        ({}, []),
        ({"reasoning_content": 5, "reasoning_details": []}, []),
        ({"reasoning_content": "hm"}, [Thinking("hm")]),
        ({"reasoning": "hm"}, [Thinking("hm")]),
        (
            {"reasoning_content": "hm", "reasoning_details": OWN.data},
            [Thinking("hm", OWN)],
        ),
        ({"reasoning_details": OWN.data}, [Thinking(signature=OWN, redacted=True)]),
        (
            {"reasoning_content": "hm", "reasoning_details": [text(SIGNED)]},
            [Thinking("hm", SIGNED, origin="here")],
        ),
        (
            {
                "reasoning_content": "one\n\ntwo",
                "reasoning_details": [
                    text(SIGNED, text="one"),
                    encrypted(ENCRYPTED),
                    text(SIGNED, text="two"),
                ],
            },
            [
                Thinking("one", SIGNED, origin="here"),
                Thinking("", ENCRYPTED, redacted=True, origin="here"),
                Thinking("two", SIGNED, origin="here"),
            ],
        ),
        (
            {"reasoning_content": "hm", "reasoning_details": [*OWN.data, encrypted(SIGNED)]},
            [
                Thinking("hm", OWN),
                Thinking("", SIGNED, redacted=True, origin="here"),
            ],
        ),
        (
            {"reasoning_details": [text(None)], "reasoning_content": "hm"},
            [Thinking("hm", origin="here")],
        ),
    ],
)
def test_reasoning_of_an_earlier_reply(message: dict[str, Any], thoughts: list[Thinking]) -> None:
    assert parse_reasoning(message) == thoughts


def test_damaged_signatures_are_not_sent() -> None:
    message = {"reasoning_details": [{"type": "reasoning.text", "signature": "gw1.%"}]}
    (thought,) = parse_reasoning(message)
    assert isinstance(thought, Thinking)
    assert thought.signature is None
    assert thought.origin not in (None, "", "here")


@pytest.mark.parametrize(
    ("thought", "same_format", "target", "fields", "dropped_names"),
    [
        (Thinking("hm"), True, HERE, {"reasoning_content": "hm"}, False),
        (Thinking("hm"), False, HERE, {}, True),
        (
            Thinking("hm", OWN),
            True,
            HERE,
            {"reasoning_content": "hm", "reasoning_details": OWN.data},
            False,
        ),
        (
            Thinking("", OWN, redacted=True, origin="here"),
            False,
            HERE,
            {"reasoning_details": OWN.data},
            False,
        ),
        (Thinking("hm", OWN, origin="elsewhere"), False, HERE, {}, True),
        (Thinking("hm", SIGNED, origin="here"), True, HERE, {}, True),
        (Thinking("hm", SIGNED), False, HERE, {}, True),
        (Thinking(""), False, HERE, {}, False),
        (Thinking("hm", origin="here"), False, HERE, {}, True),
        (
            Thinking("hm", origin="here"),
            False,
            Target(model="m", origin="here", reasoning_text=True),
            {"reasoning_content": "hm"},
            False,
        ),
        (
            Thinking("hm", origin="elsewhere"),
            False,
            Target(model="m", origin="here", reasoning_text=True),
            {},
            True,
        ),
    ],
)
def test_render_reasoning(
    thought: Thinking,
    same_format: bool,
    target: Target,
    fields: dict[str, Any],
    dropped_names: bool,
) -> None:
    assert render_reasoning([thought], target, same_format=same_format) == (fields, dropped_names)


def test_details_of_one_part_omit_its_text() -> None:
    parts = [Thinking("hm", SIGNED), Thinking("", ENCRYPTED, redacted=True)]
    details = render_details(parts, "here")
    assert details == [text(SIGNED), encrypted(ENCRYPTED)]
    message = {"reasoning_content": "hm", "reasoning_details": details}
    assert parse_reasoning(message) == [
        Thinking("hm", SIGNED, origin="here"),
        Thinking("", ENCRYPTED, redacted=True, origin="here"),
    ]


def test_details_of_several_parts_contain_their_texts() -> None:
    parts = [Thinking("one", SIGNED), Thinking("", SIGNED), Thinking("two")]
    details = render_details(parts, "here")
    message = {"reasoning_content": "one\n\ntwo", "reasoning_details": details}
    assert [entry["index"] for entry in details] == [0, 1, 2]
    assert parse_reasoning(message) == [
        Thinking("one", SIGNED, origin="here"),
        Thinking("", SIGNED, origin="here"),
        Thinking("two", None, origin="here"),
    ]


def test_unsigned_reasoning_has_no_details() -> None:
    assert render_details([Thinking("hm")], "here") == []


def test_native_details_are_unchanged() -> None:
    assert render_details([Thinking("hm", OWN)], "here") == OWN.data
    details = render_details([Thinking("hm", OWN), Thinking("", OWN, redacted=True)], "here")
    assert [entry["index"] for entry in details] == [0, 1]
    assert OWN.data[0]["index"] == 0


def test_streamed_details_are_merged() -> None:
    details: list[dict[str, Any]] = []
    kind = {"type": "reasoning.text", "index": 0}
    for more in (
        [kind | {"text": "Two ", "format": "f"}],
        [kind | {"text": "and two"}, {"type": "reasoning.encrypted", "index": 0, "data": "x"}],
        [kind | {"signature": "s"}, {"type": "reasoning.summary", "summary": "y"}, "odd"],
        "odd",
        None,
    ):
        merge_details(details, more)
    assert details == [
        kind | {"text": "Two and two", "format": "f", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 0, "data": "x"},
        {"type": "reasoning.summary", "summary": "y"},
    ]
