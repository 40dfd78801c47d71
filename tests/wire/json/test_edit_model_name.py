"""The right model name in JSON bytes is replaced, and nothing else."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json.edit import ModelNamePatcher
from tests.support.hypothesis_profiles import examples
from tests.wire.stream_cases import JSON


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"model":"up"}', b'{"model":"shown"}'),
        (b'{"model" : "up" , "x":1}', b'{"model" : "shown" , "x":1}'),
        (b'{"a":{"model":"up"},"model":"up"}', b'{"a":{"model":"up"},"model":"shown"}'),
        (b'{"a":[{"model":"up"}],"model":"up"}', b'{"a":[{"model":"up"}],"model":"shown"}'),
        (b'{"a":"model","model":"up"}', b'{"a":"model","model":"shown"}'),
        (
            b'{"a":"\\"model\\":\\"up\\"","model":"up"}',
            b'{"a":"\\"model\\":\\"up\\"","model":"shown"}',
        ),
        (b'{"model":"u\\u0070"}', b'{"model":"shown"}'),
        (b'{"model":"up","model":"up"}', b'{"model":"shown","model":"shown"}'),
    ],
)
def test_top_level_model(payload: bytes, expected: bytes) -> None:
    assert ModelNamePatcher("shown").patch(payload, "up") == expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"message":{"model":"up"}}', b'{"message":{"model":"shown"}}'),
        (b'{"model":"up","message":{"model":"up"}}', b'{"model":"up","message":{"model":"shown"}}'),
        (
            b'{"message":{"a":{"message":{"model":"up"}},"model":"up"}}',
            b'{"message":{"a":{"message":{"model":"up"}},"model":"shown"}}',
        ),
    ],
)
def test_model_of_a_parent(payload: bytes, expected: bytes) -> None:
    assert ModelNamePatcher("shown", "message").patch(payload, "up") == expected


@pytest.mark.parametrize("named", ["shown", None, 5, {"model": "up"}])
def test_unchanged_payloads(named: object) -> None:
    payload = b'{"model":"up"}'
    assert ModelNamePatcher("shown").patch(payload, named) is payload


def test_cached_edits_are_verified() -> None:
    name = ModelNamePatcher("shown")
    assert name.patch(b'{"model":"up"}', "up") == b'{"model":"shown"}'
    assert name.patch(b'{"x":{"model":"up"},"model":"up"}', "up") == (
        b'{"x":{"model":"up"},"model":"shown"}'
    )
    assert name.patch(b'{"model":"other"}', "other") == b'{"model":"shown"}'


@examples(4)
@given(
    client_model=st.text(max_size=8),
    named=st.text(max_size=8),
    parent=st.sampled_from(["", "message"]),
    bodies=st.lists(st.dictionaries(st.sampled_from(["model", "a", "message"]), JSON), max_size=3),
    indented=st.booleans(),
)
def test_parsed_bodies_differ_only_in_the_model(
    client_model: str, named: str, parent: str, bodies: list[dict[str, Any]], indented: bool
) -> None:
    name = ModelNamePatcher(client_model, parent)
    for body in bodies:
        holder = body | {"model": named}
        complete = {"z": {"model": named}, parent: holder} if parent else holder
        after = (
            {**complete, parent: holder | {"model": client_model}}
            if parent
            else body | {"model": client_model}
        )
        raw = orjson.dumps(complete, option=orjson.OPT_INDENT_2 if indented else None)
        assert orjson.loads(name.patch(raw, named)) == after
