"""Translated replies against the types of the public specification Open Responses."""

from __future__ import annotations

import inspect
from enum import Enum
from pathlib import Path
from typing import Any, Final, cast

import orjson
import pytest
from openresponses_types import types
from pydantic import BaseModel

from gateway.core.events import End, Event, Fail
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.wire.registry import CODECS
from gateway.wire.responses.encode import ResponsesEncoder
from tests.wire.responses.encoding import METADATA, PROMPT
from tests.wire.stream_cases import PROMPTS, STREAMS, decode, frames_of, param_id

EVENTS: Final[dict[str, type[BaseModel]]] = {
    next(iter(cast("type[Enum]", each.model_fields["type"].annotation))).value: each
    for name, each in vars(types).items()
    if inspect.isclass(each) and name.endswith("StreamingEvent")
}
KNOWN_ITEMS: Final = {"message", "function_call", "reasoning", "compaction"}
KNOWN_EFFORTS: Final = {None, "none", "low", "medium", "high", "xhigh"}
TRANSLATED: Final = [(format, path) for format, path in STREAMS if format is not Format.RESPONSES]
OWN_PROMPTS: Final = [path for format, path in PROMPTS if format is Format.RESPONSES]


def events_of(format: Format, path: Path) -> list[Event]:
    return decode(CODECS[format].decoder(), path.read_bytes())


def check(request: Prompt, events: list[Event]) -> int:
    """Validate a stream's frames; return how many objects the specification has."""
    encoder = ResponsesEncoder(request, METADATA)
    raw = b"".join(encoder.encode(event) for event in events if not isinstance(event, Fail))
    checked = 0
    for frame in frames_of([raw]):
        data = orjson.loads(frame.data or b"")
        if data["type"] in EVENTS and not is_beyond(data):
            EVENTS[data["type"]].model_validate(data)
            checked += 1
    return checked


def is_beyond(data: dict[str, Any]) -> bool:
    """Tell whether an object has what the specification does not know, or an output format with a
    schema, which the package's type requires to be null."""
    response = data.get("response", {})
    items = [*response.get("output", ()), *([data["item"]] if "item" in data else [])]
    tools, choice = response.get("tools", ()), response.get("tool_choice", "auto")
    return (
        "schema" in response.get("text", {}).get("format", {})
        or any(item["type"] not in KNOWN_ITEMS for item in items)
        or any(tool["type"] != "function" for tool in tools)
        or (isinstance(choice, dict) and choice["type"] not in ("function", "allowed_tools"))
        or response.get("reasoning", {}).get("effort") not in KNOWN_EFFORTS
    )


@pytest.mark.parametrize(("format", "path"), TRANSLATED, ids=param_id)
def test_translated_streams_are_valid(format: Format, path: Path) -> None:
    events = events_of(format, path)
    assert check(PROMPT, events) >= 2 * any(isinstance(event, End) for event in events)


@pytest.mark.parametrize("path", OWN_PROMPTS, ids=param_id)
def test_the_echo_of_a_request_is_valid(path: Path) -> None:
    try:
        request = CODECS[Format.RESPONSES].parse_prompt(orjson.loads(path.read_bytes()))
    except ValueError:
        pytest.skip("a request that is refused")
    check(request, events_of(*TRANSLATED[0]))


def test_functions_are_complete_in_the_echo() -> None:
    body = {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f"}]}
    request = CODECS[Format.RESPONSES].parse_prompt(body)
    tool = {"type": "function", "name": "f", "description": None, "parameters": None}
    assert ResponsesEncoder(request, METADATA).response["tools"] == [tool | {"strict": None}]
    assert check(request, events_of(*TRANSLATED[0])) > 2
