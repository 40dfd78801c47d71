"""What an upstream was asked, read from any format's body as the same few things.

Independent of what is tested.
"""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from tests.conformance.validating_upstream import Body, Request


def system_of(request: Request) -> str:
    """The leading system's words."""
    body = request.body
    match request.format:
        case Format.CHAT:
            assert body["messages"][0]["role"] in ("system", "developer")
            return str(body["messages"][0]["content"])
        case Format.MESSAGES:
            system = body["system"]
            return str(system if isinstance(system, str) else system[0]["text"])
        case Format.RESPONSES:
            return str(body["instructions"])


def tools_of(request: Request) -> dict[str, Body]:
    """Schemas of the tools by name."""
    tools = request.body.get("tools") or []
    match request.format:
        case Format.CHAT:
            return {t["function"]["name"]: t["function"]["parameters"] for t in tools}
        case Format.MESSAGES:
            return {tool["name"]: tool.get("input_schema") or {} for tool in tools}
        case Format.RESPONSES:
            return {tool["name"]: tool.get("parameters") or {} for tool in tools if "name" in tool}


def choice_of(request: Request) -> str | None:
    """auto, none, required, or the name of the tool that is forced."""
    choice: Any = request.body.get("tool_choice")
    if isinstance(choice, dict):
        if choice["type"] == "any":
            return "required"
        if choice["type"] == "function":
            return str(choice.get("function", choice)["name"])
        return str(choice.get("name", choice["type"]))
    return None if choice is None else str(choice)


def parallel_of(request: Request) -> bool:
    """Whether several calls at once are allowed."""
    if request.format is Format.MESSAGES:
        choice = request.body.get("tool_choice") or {}
        return choice.get("disable_parallel_tool_use") is not True
    return request.body.get("parallel_tool_calls") is not False


def effort_of(request: Request) -> str | None:
    match request.format:
        case Format.CHAT:
            return request.body.get("reasoning_effort")
        case Format.MESSAGES:
            return (request.body.get("output_config") or {}).get("effort")
        case Format.RESPONSES:
            return (request.body.get("reasoning") or {}).get("effort")


def answer_schema_of(request: Request) -> Body | None:
    """The JSON Schema of the answer's text."""
    body = request.body
    match request.format:
        case Format.CHAT:
            described = (body.get("response_format") or {}).get("json_schema") or {}
        case Format.MESSAGES:
            described = (body.get("output_config") or {}).get("format") or {}
        case Format.RESPONSES:
            described = (body.get("text") or {}).get("format") or {}
    return described.get("schema")


def last_user_parts(request: Request) -> list[str]:
    """The user's last words and pictures in their order: texts, and addresses of images."""
    body = request.body
    turns = body["input"] if request.format is Format.RESPONSES else body["messages"]
    content = next(turn["content"] for turn in reversed(turns) if turn.get("role") == "user")
    return [content] if isinstance(content, str) else [_part(part) for part in content]


def extends(later: Request, earlier: Request) -> bool:
    """Whether a prompt goes on where the earlier one ended, so that a cache of it is of use."""
    history = "input" if later.format is Format.RESPONSES else "messages"
    result, again = earlier.body[history], later.body[history]
    same = all(
        _unmarked(later.body.get(field)) == _unmarked(earlier.body.get(field))
        for field in ("system", "instructions", "tools", "prompt_cache_key")
    )
    return same and _unmarked(again[: len(result)]) == _unmarked(result)


def _unmarked(value: Any) -> Any:
    """Without the marks of a cache, which move on with the conversation."""
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        return {k: _unmarked(item) for k, item in value.items() if k != "cache_control"}
    return value


def _part(part: Body) -> str:
    match part:
        case {"text": str(text)}:
            return text
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
            return url
        case {"source": {"type": "url", "url": str(url)}}:
            return url
        case {"source": {"type": "base64", "media_type": kind, "data": data}}:
            return f"data:{kind};base64,{data}"
        case _:
            return str(part["type"])
