"""What a chat vendor refuses beyond types. Independent of who asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from tests.conformance.rules.ids import IssuedIds
from tests.conformance.rules.images import bad_image_url
from tests.conformance.rules.schemas import not_strict, unlike_object

Body = dict[str, Any]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_ID: Final = 64
_MOST_STOPS: Final = 4


def refusals(body: Body, issued: IssuedIds) -> Iterator[str]:
    del issued  # nothing is signed in this format
    turns = body["messages"]
    if not turns:
        yield "messages: must not be empty"
    yield from _pairing(turns)
    for number, turn in enumerate(turns):
        yield from _turn(turn, f"messages.{number}")
    yield from _tools(body)
    yield from _answer(body)
    if "stream_options" in body and not body.get("stream"):
        yield "stream_options: only with stream"
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "max_tokens: not together with max_completion_tokens"
    if isinstance(body.get("stop"), list) and len(body["stop"]) > _MOST_STOPS:
        yield "stop: at most 4"
    if not 0 <= (body.get("temperature") or 0) <= 2:
        yield "temperature: between 0 and 2"
    if body.get("metadata") and not body.get("store"):
        yield "metadata: only with store"
    for field in ("user", "safety_identifier", "prompt_cache_key"):
        if len(body.get(field) or "") > 64:
            yield f"{field}: at most 64 characters"


def _pairing(turns: list[Body]) -> Iterator[str]:
    """Nothing stands between calls and their results."""
    open_calls: list[str] = []
    for number, turn in enumerate(turns):
        if turn["role"] == "tool":
            if turn["tool_call_id"] not in open_calls:
                yield f"messages.{number}: no call {turn['tool_call_id']!r} comes before"
            else:
                open_calls.remove(turn["tool_call_id"])
            continue
        if open_calls:
            yield f"messages.{number}: calls {open_calls} must be followed by tool messages"
        calls = turn.get("tool_calls") or [] if turn["role"] == "assistant" else []
        open_calls = [call["id"] for call in calls]
        if len(set(open_calls)) < len(open_calls):
            yield f"messages.{number}: ids of calls must be unique"
    if open_calls:
        yield f"messages: calls {open_calls} must be followed by tool messages"


def _turn(turn: Body, place: str) -> Iterator[str]:
    content = turn.get("content")
    if turn["role"] == "user" and not content:
        yield f"{place}.content: must not be empty"
    if turn["role"] == "assistant" and not (
        content or turn.get("refusal") or turn.get("tool_calls")
    ):
        yield f"{place}: neither content nor tool_calls"
    if "tool_calls" in turn and not turn["tool_calls"]:
        yield f"{place}.tool_calls: must not be empty"
    for part in content if isinstance(content, list) else ():
        if part["type"] == "image_url":
            yield from bad_image_url(part["image_url"]["url"], f"{place}.content")
    for call in turn.get("tool_calls") or ():
        yield from _call(call, f"{place}.tool_calls")


def _call(call: Body, place: str) -> Iterator[str]:
    if not 0 < len(call["id"]) <= _LONGEST_ID:
        yield f"{place}: an id has 1 to 64 characters"
    if call["type"] != "function":
        return
    function = call["function"]
    if not _NAME.fullmatch(function["name"]):
        yield f"{place}: {function['name']!r} is no name of a function"
    if not _is_object(function["arguments"]):
        yield f"{place}: {function['arguments']!r} is no JSON object"


def _is_object(arguments_text: str) -> bool:
    try:
        return isinstance(orjson.loads(arguments_text), dict)
    except orjson.JSONDecodeError:
        return False


def _tools(body: Body) -> Iterator[str]:
    tools = body.get("tools")
    if tools == []:
        yield "tools: must not be empty"
    for field in ("tool_choice", "parallel_tool_calls"):
        if field in body and not tools:
            yield f"{field}: only with tools"
    names = [tool[tool["type"]]["name"] for tool in tools or ()]
    if len(set(names)) < len(names):
        yield "tools: names must be unique"
    for number, tool in enumerate(tools or ()):
        if tool["type"] == "function":
            yield from _function(tool["function"], f"tools.{number}.function")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice["type"] != "allowed_tools":
        name = choice[choice["type"]]["name"]
        if name not in names:
            yield f"tool_choice: there is no tool {name!r}"


def _function(function: Body, place: str) -> Iterator[str]:
    if not _NAME.fullmatch(function["name"]):
        yield f"{place}: {function['name']!r} is no name of a function"
    if "parameters" in function:
        yield from unlike_object(function["parameters"], place)
    if function.get("strict"):
        yield from not_strict(function["parameters"], place)


def _answer(body: Body) -> Iterator[str]:
    form = body.get("response_format") or {"type": "text"}
    if form["type"] == "json_object" and b"json" not in orjson.dumps(body["messages"]).lower():
        yield "messages: must contain the word 'json' for a response_format of type json_object"
    if form["type"] == "json_schema":
        described = form["json_schema"]
        if not _NAME.fullmatch(described["name"]):
            yield f"response_format: {described['name']!r} is no name"
        if described.get("strict"):
            yield from not_strict(described["schema"], "response_format")
