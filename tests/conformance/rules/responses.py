"""What a responses vendor refuses beyond types. Independent of who asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import orjson

from tests.conformance.rules.ids import IssuedIds
from tests.conformance.rules.images import bad_image_url
from tests.conformance.rules.schemas import not_strict, unlike_object

Body = dict[str, Any]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALLS: Final = ("function_call", "custom_tool_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_LEAST_OUTPUT: Final = 16
ENCRYPTED: Final = "reasoning.encrypted_content"
WITHOUT_REASONING: Final = "upstream-model-without-reasoning"


def refusals(body: Body, issued: IssuedIds) -> Iterator[str]:
    items = body.get("input")
    if not items:
        yield "input: must not be empty"
    items = items if isinstance(items, list) else []
    yield from _pairing(items)
    yield from _reasoning(items, issued)
    for number, item in enumerate(items):
        yield from _item(item, f"input.{number}", issued)
    yield from _tools(body)
    yield from _answer(body)
    if body["model"] == WITHOUT_REASONING and ENCRYPTED in (body.get("include") or ()):
        yield "include: Encrypted content is not supported with this model"
    if (body.get("max_output_tokens") or _LEAST_OUTPUT) < _LEAST_OUTPUT:
        yield "max_output_tokens: at least 16"
    if not 0 <= (body.get("temperature") or 0) <= 2:
        yield "temperature: between 0 and 2"
    for field in ("user", "safety_identifier", "prompt_cache_key"):
        if len(body.get(field) or "") > 64:
            yield f"{field}: at most 64 characters"


def _kind(item: Body) -> str:
    return str(item.get("type", "message"))


def _pairing(items: list[Body]) -> Iterator[str]:
    called: dict[str, str] = {}
    for number, item in enumerate(items):
        if _kind(item) in _CALLS:
            if item["call_id"] in called:
                yield f"input.{number}: call {item['call_id']!r} was made before"
            called[item["call_id"]] = f"{_kind(item)}_output"
        if _kind(item) in _OUTPUTS and called.pop(item["call_id"], None) != _kind(item):
            yield f"input.{number}: no call {item['call_id']!r} for this output"
    for call_id in called:
        yield f"input: no output for call {call_id!r}"


def _reasoning(items: list[Body], issued: IssuedIds) -> Iterator[str]:
    """Reasoning belongs to what it led to, and only whoever wrote it can read it."""
    for item, following in pairwise([*items, {"type": "nothing"}]):
        if _kind(item) != "reasoning":
            continue
        if not (
            _kind(following) in (*_CALLS, "reasoning")
            or (_kind(following) == "message" and following["role"] == "assistant")
        ):
            yield "input: a reasoning item without the item that must follow it"
        sealed = item.get("encrypted_content")
        text = "\n".join(part["text"] for part in item["summary"])
        if sealed is None or issued.signed_thinking.get(sealed) != text:
            yield f"input: the encrypted content {sealed!r} could not be verified"
        elif "id" in item and issued.items.get(item["id"]) != sealed:
            yield f"input: the encrypted content does not belong to item {item['id']!r}"


def _item(item: Body, place: str, issued: IssuedIds) -> Iterator[str]:
    if "id" in item and _kind(item) != "reasoning" and item["id"] not in issued.ids:
        yield f"{place}: an item with id {item['id']!r} is not known"
    match _kind(item):
        case "message":
            yield from _content(item, place)
        case "function_call":
            if not 0 < len(item["call_id"]) <= 64:
                yield f"{place}.call_id: 1 to 64 characters"
            if not _NAME.fullmatch(item["name"]):
                yield f"{place}: {item['name']!r} is no name of a function"
        case "function_call_output" if isinstance(item["output"], list):
            yield from _images(item["output"], place)


def _content(item: Body, place: str) -> Iterator[str]:
    content = item["content"]
    if isinstance(content, str):
        return
    if not content:
        yield f"{place}.content: must not be empty"
    own = ("output_text", "refusal") if item["role"] == "assistant" else ("input_",)
    for part in content:
        if not part["type"].startswith(own):
            yield f"{place}.content: no {part['type']} from the {item['role']}"
    yield from _images(content, place)


def _images(parts: list[Body], place: str) -> Iterator[str]:
    for part in parts:
        if part["type"] == "input_image" and part.get("image_url"):
            yield from bad_image_url(part["image_url"], place)


def _tools(body: Body) -> Iterator[str]:
    tools = body.get("tools") or []
    names = [tool["name"] for tool in tools if "name" in tool]
    if len(set(names)) < len(names):
        yield "tools: names must be unique"
    for number, tool in enumerate(tools):
        if tool["type"] != "function":
            continue
        place = f"tools.{number}"
        if not _NAME.fullmatch(tool["name"]):
            yield f"{place}: {tool['name']!r} is no name of a function"
        if tool["parameters"] is not None:
            yield from unlike_object(tool["parameters"], place)
        # Silence means strict here.
        if tool.get("strict") is not False:
            yield from not_strict(tool["parameters"], place)
    choice = body.get("tool_choice")
    if choice and choice != "auto" and not tools:
        yield "tool_choice: there are no tools"
    if isinstance(choice, dict) and choice.get("name") and choice["name"] not in names:
        yield f"tool_choice: there is no tool {choice['name']!r}"


def _answer(body: Body) -> Iterator[str]:
    form = (body.get("text") or {}).get("format") or {"type": "text"}
    if form["type"] == "json_object" and b"json" not in orjson.dumps(body["input"]).lower():
        yield "input: must contain the word 'json' for a text.format of type json_object"
    if form["type"] == "json_schema":
        if not _NAME.fullmatch(form["name"]):
            yield f"text.format: {form['name']!r} is no name"
        if form.get("strict"):
            yield from not_strict(form["schema"], "text.format")
