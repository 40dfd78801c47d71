"""A request to the model, the fields of its body, and its size in tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import orjson

Body = dict[str, Any]
"""A JSON object."""

_Kind = TypeVar("_Kind")


class RequestError(Exception):
    """A request that the simulator rejects."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: Body = {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": param,
                "code": code,
            }
        }


def required(body: Body, name: str, kind: type[_Kind]) -> _Kind:
    """Return the field, which must be of this type and not empty; else raise a RequestError."""
    value = body.get(name)
    if value is None or value in ("", []):
        message = f"Missing required parameter: '{name}'."
        raise RequestError(message, param=name, code="missing_required_parameter")
    if not isinstance(value, kind):
        raise RequestError(f"Invalid type for '{name}'.", param=name, code="invalid_type")
    return value


def token_limit(body: Body, *names: str) -> int | None:
    """Return the first of these fields that is set; a RequestError if it is no whole number."""
    for name in names:
        match body.get(name):
            case None:
                continue
            case int(value) if value >= 0:
                return value
            case _:
                message = f"Invalid '{name}': expected a whole number of tokens."
                raise RequestError(message, param=name, code="invalid_value")
    return None


def objects(value: object) -> list[Body]:
    """Return the objects of a list; items of other types are ignored."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def field(body: Body, kind: type[_Kind], path: str) -> _Kind | None:
    """Return the value at a dotted path if it has this type."""
    value: object = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, kind) else None


def strings(value: object) -> tuple[str, ...]:
    """Return a string or the strings of a list, without empty ones."""
    values: Iterable[object] = value if isinstance(value, list) else [value]
    return tuple(item for item in values if isinstance(item, str) and item)


Schema = dict[str, Any]
"""A JSON Schema."""

_ATTACHMENT_TOKENS = 800


def count_tokens(text: str) -> int:
    """Counts four characters per token, rounded up."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a turn, with its kind's ``text``:

    - text: the text
    - image: its URL, which can be a data URI
    - attachment: a description of a document or an audio input, which the simulator does not open
    - call: the arguments of a tool call
    - result: the texts of a tool result
    """

    kind: Literal["text", "image", "attachment", "call", "result"]
    text: str
    tool_name: str = ""

    @property
    def tokens(self) -> int:
        if self.kind in ("image", "attachment"):
            return _ATTACHMENT_TOKENS
        return count_tokens(self.tool_name) + count_tokens(self.text)


@dataclass(frozen=True, slots=True)
class Turn:
    """A message or item of one side."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the client. Without a schema it takes free text."""

    name: str
    schema: Schema | None
    description: str = ""

    @property
    def tokens(self) -> int:
        schema = orjson.dumps(self.schema or {}).decode()
        return sum(map(count_tokens, (self.name, self.description, schema)))


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """``only`` names the allowed tools; empty means all."""

    mode: Literal["auto", "none", "required"] = "auto"
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """``limit`` is in tokens; ``effort`` is None without thinking."""

    model: str
    instructions: str
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_calls: bool = True
    schema: Schema | None = None
    effort: str | None = None
    limit: int | None = None
    stops: tuple[str, ...] = ()

    @property
    def earlier_turns(self) -> int:
        """Counts the turns up to and including the model's last one."""
        roles = enumerate((turn.role for turn in self.turns), 1)
        return max((number for number, role in roles if role == "assistant"), default=0)

    @property
    def new_parts(self) -> tuple[Part, ...]:
        """The parts after the model's last turn."""
        return tuple(part for turn in self.turns[self.earlier_turns :] for part in turn.parts)

    @property
    def tool_results(self) -> tuple[Part, ...]:
        """The tool results after the model's last turn."""
        return tuple(part for part in self.new_parts if part.kind == "result")

    @property
    def question(self) -> str:
        """The user's last text; only the last part, as agents put context before it."""
        parts = [part for turn in self.turns if turn.role == "user" for part in turn.parts]
        texts = (part.text.strip() for part in reversed(parts) if part.kind == "text")
        return next(filter(None, texts), "")

    @property
    def called_tools(self) -> frozenset[str]:
        """Names of the tools that the model has called since the last question."""
        names: set[str] = set()
        for turn in reversed(self.turns):
            names.update(part.tool_name for part in turn.parts if part.kind == "call")
            if turn.role == "user" and all(part.kind != "result" for part in turn.parts):
                break
        return frozenset(names)

    @property
    def cacheable_tokens(self) -> int:
        """Size of what every request of a conversation repeats: instructions and tools."""
        return count_tokens(self.instructions) + sum(tool.tokens for tool in self.tools)

    @property
    def cached_tokens(self) -> int:
        """Size of what an earlier request had too; 0 in a first turn."""
        if not self.earlier_turns:
            return 0
        earlier = self.turns[: self.earlier_turns - 1]
        return self.cacheable_tokens + sum(turn.tokens for turn in earlier)

    @property
    def tokens(self) -> int:
        """Size of the whole request."""
        return self.cacheable_tokens + sum(turn.tokens for turn in self.turns)
