"""What a messages vendor refuses beyond types. Independent of who asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from tests.conformance.rules.ids import IssuedIds
from tests.conformance.rules.images import bad_image
from tests.conformance.rules.schemas import not_structured, unlike_object

Body = dict[str, Any]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_MARKS: Final = 4
_LEAST_BUDGET: Final = 1024


def refusals(body: Body, issued: IssuedIds) -> Iterator[str]:
    turns = body["messages"]
    yield from _order(turns)
    yield from _pairing(turns)
    for number, turn in enumerate(turns):
        for place, block in _within(turn["content"], f"messages.{number}.content"):
            yield from _block(block, place, issued)
    yield from _system(body.get("system"))
    yield from _tools(body)
    yield from _thinking(body)
    yield from _marks(body)
    yield from not_structured(_answer_schema(body), "output_config.format.schema")
    user = (body.get("metadata") or {}).get("user_id") or ""
    if len(user) > 256 or "@" in user:
        yield "metadata.user_id: too long, or it looks like an address"


def _order(turns: list[Body]) -> Iterator[str]:
    if not turns or turns[0]["role"] != "user":
        yield "messages: the first message must be the user's"
    roles = [turn["role"] for turn in turns if turn["role"] != "system"]
    for number, (one, next_one) in enumerate(pairwise(roles)):
        if one == next_one:
            yield f"messages.{number + 1}: two messages of role {one} in a row"
    results = [turn["role"] for turn in turns]
    for before, role, after in zip(
        ["", *results], results, [*results[1:], "assistant"], strict=False
    ):
        if role == "system" and (before, after) != ("user", "assistant"):
            yield "messages: a system message belongs between the user's and the assistant's"
    last = _blocks(turns[-1]["content"]) if turns else []
    if turns and turns[-1]["role"] == "assistant" and last:
        text = last[-1].get("text", "")
        if text != text.rstrip():
            yield "messages: the final assistant content ends with whitespace"


def _pairing(turns: list[Body]) -> Iterator[str]:
    """Results stand first in the message right after the calls, one for each."""
    called: list[str] = []
    all_ids: set[str] = set()
    for number, turn in enumerate(turns):
        if turn["role"] == "system":
            continue
        blocks = _blocks(turn["content"])
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        leading = [block["type"] for block in blocks[: len(answered)]]
        if any(kind != "tool_result" for kind in leading):
            yield f"messages.{number}: tool results must come first"
        if sorted(answered) != sorted(called):
            yield f"messages.{number}: calls {called} are answered by results {answered}"
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(called)) < len(called) or all_ids & set(called):
            yield f"messages.{number}: tool_use ids must be unique"
        all_ids |= set(called)
    if called:
        yield f"messages: calls {called} have no results"


def _block(block: Body, place: str, issued: IssuedIds) -> Iterator[str]:
    match block["type"]:
        case "text" if not block["text"].strip():
            yield f"{place}: text content blocks must be non-empty"
        case "text" if any(
            each.get("encrypted_index") == "" for each in block.get("citations") or ()
        ):
            yield f"{place}.citations: Invalid `encrypted_index`"
        case "image" if block["source"]["type"] == "base64":
            source = block["source"]
            yield from bad_image(source["media_type"], source["data"], place)
        case "tool_use":
            yield from _call(block, place)
        case "thinking" if issued.signed_thinking.get(block["signature"]) != block["thinking"]:
            yield f"{place}: Invalid `signature` in `thinking` block"
        case "redacted_thinking" if block["data"] not in issued.signed_thinking:
            yield f"{place}: Invalid `data` in `redacted_thinking` block"
        case "tool_result":
            for inner_place, inner in _within(block.get("content") or [], f"{place}.content"):
                if "cache_control" in inner:
                    yield f"{inner_place}: cache_control belongs to the tool_result"
                yield from _block(inner, inner_place, issued)


def _call(block: Body, place: str) -> Iterator[str]:
    if not _ID.fullmatch(block["id"]):
        yield f"{place}.id: {block['id']!r} has characters that ids must not have"
    if not _NAME.fullmatch(block["name"]):
        yield f"{place}.name: {block['name']!r} is no name of a tool"


def _system(system: Any) -> Iterator[str]:
    for place, block in _within(system or [], "system"):
        if not block["text"].strip():
            yield f"{place}: text content blocks must be non-empty"


def _tools(body: Body) -> Iterator[str]:
    tools = body.get("tools") or []
    choice = body.get("tool_choice") or {}
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield "tools: names must be unique"
    for number, tool in enumerate(tools):
        if tool.get("type", "custom") != "custom":
            continue
        place = f"tools.{number}"
        if not _NAME.fullmatch(tool["name"]):
            yield f"{place}: {tool['name']!r} is no name of a tool"
        yield from unlike_object(tool["input_schema"], place)
        if {"oneOf", "anyOf", "allOf"} & set(tool["input_schema"]):
            yield f"{place}: no alternatives at the top of an input_schema"
    if choice and not tools:
        yield "tool_choice: there are no tools"
    if choice.get("type") == "tool" and choice["name"] not in names:
        yield f"tool_choice: there is no tool {choice['name']!r}"
    if not tools and any(
        block["type"] in ("tool_use", "tool_result")
        for turn in body["messages"]
        for block in _blocks(turn["content"])
    ):
        yield "tools: required where the history has calls"


def _thinking(body: Body) -> Iterator[str]:
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] == "disabled":
        return
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        yield "tool_choice: thinking may not be enabled when it forces a tool"
    if body.get("temperature", 1) != 1:
        yield "temperature: may only be 1 when thinking is enabled"
    if "top_k" in body:
        yield "top_k: must be unset when thinking is enabled"
    if thinking["type"] != "enabled":
        return
    if not _LEAST_BUDGET <= thinking["budget_tokens"] < body["max_tokens"]:
        yield "thinking.budget_tokens: at least 1024 and less than max_tokens"
    results = [turn for turn in body["messages"] if turn["role"] != "system"]
    if len(results) > 1 and any(
        b["type"] == "tool_result" for b in _blocks(results[-1]["content"])
    ):
        first = _blocks(results[-2]["content"])[0]
        if first["type"] not in ("thinking", "redacted_thinking"):
            yield "messages: a final assistant message must start with a thinking block"


def _marks(body: Body) -> Iterator[str]:
    marked = [body, *_blocks(body.get("system") or []), *(body.get("tools") or [])]
    for turn in body["messages"]:
        marked += _blocks(turn["content"])
    if sum(bool(block.get("cache_control")) for block in marked) > _MOST_MARKS:
        yield "cache_control: at most 4 blocks may have it"


def _answer_schema(body: Body) -> Any:
    return ((body.get("output_config") or {}).get("format") or {}).get("schema")


def _blocks(content: Any) -> list[Body]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _within(content: Any, place: str) -> Iterator[tuple[str, Body]]:
    for number, block in enumerate(_blocks(content)):
        yield f"{place}.{number}", block
