"""The check of types: nothing unknown and nothing of a wrong type gets by, however deep it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.conformance.request_types import violations

SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}}}
RICH: dict[Format, dict[str, Any]] = {
    Format.CHAT: {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                    {"type": "file", "file": {"file_data": "data:;base64,AAAA", "filename": "a"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "clock", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "noon"}]},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "clock", "description": "The time.", "parameters": SCHEMA},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "clock"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": SCHEMA},
        },
        "stop": ["END"],
        "temperature": 0.5,
        "seed": 1,
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    Format.MESSAGES: {
        "model": "m",
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}},
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "a"},
                        "citations": {"enabled": True},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "SEAL"},
                    {"type": "redacted_thinking", "data": "BLACK"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": "UTC"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "noon"}],
                        "is_error": False,
                    }
                ],
            },
        ],
        "tools": [{"name": "clock", "description": "The time.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "max_tokens": 3000,
        "metadata": {"user_id": "u"},
        "output_config": {"effort": "low"},
        "stop_sequences": ["END"],
        "stream": True,
    },
    Format.RESPONSES: {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": "https://example.com/a", "detail": "low"},
                    {"type": "input_file", "file_data": "data:;base64,AAAA", "filename": "a"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "SEAL",
            },
            {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_text", "text": "noon"}],
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Noon."}],
            },
            {"role": "user", "content": "Sure?"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "clock",
                "strict": False,
                "description": "The time.",
                "parameters": SCHEMA,
            }
        ],
        "tool_choice": {"type": "function", "name": "clock"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {
            "format": {"type": "json_schema", "name": "a", "schema": SCHEMA},
            "verbosity": "low",
        },
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 100,
        "parallel_tool_calls": False,
        "store": False,
        "stream": True,
    },
}
"""A request of each format with something of everything."""
FREE = {"parameters", "input_schema", "schema", "input"}
"""Objects in which anything may stand."""


def violations_of(format: Format, body: Any) -> list[str]:
    return violations(format, orjson.dumps(body), streamed=True, old=True, extended=False)


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Of everything in a body, but of nothing within what is free."""
    yield path
    if isinstance(value, dict) and not FREE & {*path[-1:]}:
        for key, below in value.items():
            yield from places(below, *path, key)
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from places(below, *path, number)


def at(body: Any, path: Iterable[Any]) -> Any:
    return reduce(getitem, path, body)


@pytest.mark.parametrize("format", Format)
def test_rich_requests_are_valid(format: Format) -> None:
    assert violations_of(format, RICH[format]) == []


@pytest.mark.parametrize("format", Format)
def test_wrong_types(format: Format) -> None:
    overlooked = []
    for *above, last in filter(None, places(RICH[format])):
        body = deepcopy(RICH[format])
        holder = at(body, above)
        holder[last] = 7.5 if isinstance(holder[last], dict) else {"surprise": 1}
        if not violations_of(format, body):
            overlooked.append((*above, last))
    assert overlooked == []


@pytest.mark.parametrize("format", Format)
def test_unknown_keys(format: Format) -> None:
    overlooked = []
    for path in places(RICH[format]):
        body = deepcopy(RICH[format])
        place = at(body, path)
        if isinstance(place, dict) and not FREE & {*path[-1:]}:
            place["surprise"] = 1
            if not any(
                "surprise: Extra inputs" in result for result in violations_of(format, body)
            ):
                overlooked.append(path)
    assert overlooked == []
