"""Of which format a refused body is."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.wire.body_format import likely_format

CHAT, MESSAGES, RESPONSES = Format.CHAT, Format.MESSAGES, Format.RESPONSES
PLAIN: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
FUNCTION = {"type": "function", "function": {"name": "f"}}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


@pytest.mark.parametrize(
    ("body", "refused_by", "has_version", "format"),
    [
        ({"input": "x"}, CHAT, False, RESPONSES),
        ({"input": "x"}, MESSAGES, True, RESPONSES),
        ({"input": 5}, RESPONSES, False, None),
        ({"input": "x", "messages": []}, CHAT, False, None),
        ({}, CHAT, False, None),
        (PLAIN, RESPONSES, False, CHAT),
        (PLAIN, RESPONSES, True, CHAT),
        (PLAIN | {"max_tokens": 1}, RESPONSES, True, MESSAGES),
        (PLAIN | {"max_tokens": 1}, RESPONSES, False, CHAT),
        (PLAIN, MESSAGES, True, None),
        (PLAIN, CHAT, True, None),
        (PLAIN | {"stop": "x"}, MESSAGES, False, CHAT),
        (PLAIN | {"tools": [FUNCTION]}, MESSAGES, False, CHAT),
        (PLAIN | {"messages": [IMAGE]}, MESSAGES, False, CHAT),
        (PLAIN | {"system": "x"}, CHAT, True, MESSAGES),
        (PLAIN | {"tools": [{"name": "f", "input_schema": {}}]}, CHAT, True, MESSAGES),
        (PLAIN | {"system": "x", "seed": 1}, CHAT, True, None),
        (PLAIN | {"messages": 5, "tools": "x"}, CHAT, True, None),
        (PLAIN | {"stop": "x"}, CHAT, False, None),
    ],
)
def test_signs(
    body: dict[str, Any], refused_by: Format, has_version: bool, format: Format | None
) -> None:
    assert likely_format(body, refused_by, has_version=has_version) is format
