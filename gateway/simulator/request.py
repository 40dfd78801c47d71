"""What a client asks, whatever the format it asked in.

This room must not know how any format writes an ask or an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import orjson

from gateway.simulator.errors import RequestError

Body = dict[str, Any]
"""A JSON object as it came over the wire."""

Schema = dict[str, Any]
"""A JSON Schema."""

ANY_OBJECT: Schema = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}
"""Stands in where a client wants JSON but shows no schema."""

_IMAGE_TOKENS = 800

_Kind = TypeVar("_Kind")


def count_tokens(text: str) -> int:
    """The usual rule of thumb: four characters a token, rounded up."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class Text:
    """Something that was said."""

    text: str

    @property
    def tokens(self) -> int:
        return count_tokens(self.text)


@dataclass(frozen=True, slots=True)
class Image:
    """An image, as a data URI or an address."""

    url: str

    @property
    def tokens(self) -> int:
        return _IMAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Attachment:
    """A document or a sound: the simulator knows it by name and does not open it."""

    name: str

    @property
    def tokens(self) -> int:
        return _IMAGE_TOKENS


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One side of a tool's use: the arguments in a model's turn, the result in a user's turn."""

    name: str
    text: str

    @property
    def tokens(self) -> int:
        return count_tokens(self.name) + count_tokens(self.text)


Part = Text | Image | Attachment | ToolUse


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said at once."""

    role: Literal["user", "model"]
    parts: tuple[Part, ...]

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the client runs. Without a schema it takes free text instead of arguments."""

    name: str
    schema: Schema | None
    description: str = ""
    namespace: str | None = None

    @property
    def tokens(self) -> int:
        schema = orjson.dumps(self.schema or {}).decode()
        return sum(map(count_tokens, (self.name, self.description, schema)))


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether tools are to be called. ``only`` names those that count; empty means all."""

    mode: Literal["auto", "none", "required"] = "auto"
    only: tuple[str, ...] = ()
    parallel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything that decides what the simulator says.

    ``limit`` is in tokens; ``effort`` is None where no thinking was asked for.
    """

    format: str
    model: str
    instructions: str
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()
    choice: Choice = Choice()
    schema: Schema | None = None
    effort: str | None = None
    limit: int | None = None
    stops: tuple[str, ...] = ()

    @property
    def earlier_turns(self) -> int:
        """How many turns there are up to and including the model's last one."""
        spoken = [at for at, turn in enumerate(self.turns, 1) if turn.role == "model"]
        return spoken[-1] if spoken else 0

    @property
    def new_parts(self) -> tuple[Part, ...]:
        """What the user's side brought since the model last spoke."""
        return tuple(part for turn in self.turns[self.earlier_turns :] for part in turn.parts)

    @property
    def results(self) -> tuple[ToolUse, ...]:
        """The tool results among the news."""
        return tuple(part for part in self.new_parts if isinstance(part, ToolUse))

    @property
    def question(self) -> str:
        """The user's latest text; only the last part, since agents put context before it."""
        return next((text for turn, text in self._texts() if turn.role == "user"), "")

    @property
    def called(self) -> frozenset[str]:
        """Names of the tools that the model has called since the latest question."""
        names: set[str] = set()
        for turn in reversed(self.turns):
            uses = [part.name for part in turn.parts if isinstance(part, ToolUse)]
            if turn.role == "model":
                names.update(uses)
            elif not uses:
                break
        return frozenset(names)

    @property
    def cacheable_tokens(self) -> int:
        """Size of what every request of a conversation repeats: instructions and tools."""
        return count_tokens(self.instructions) + sum(tool.tokens for tool in self.tools)

    @property
    def cached_tokens(self) -> int:
        """Size of what an earlier request must have carried already; 0 on a first turn."""
        if not self.earlier_turns:
            return 0
        earlier = self.turns[: self.earlier_turns - 1]
        return self.cacheable_tokens + sum(turn.tokens for turn in earlier)

    @property
    def tokens(self) -> int:
        """Size of the whole ask."""
        return self.cacheable_tokens + sum(turn.tokens for turn in self.turns)

    def _texts(self) -> Iterator[tuple[Turn, str]]:
        for turn in reversed(self.turns):
            for part in reversed(turn.parts):
                if isinstance(part, Text) and part.text.strip():
                    yield turn, part.text.strip()


def join_texts(parts: Iterable[Part]) -> str:
    """The texts among some parts, one below the other."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def objects(value: object) -> list[Body]:
    """The objects of a list; anything else is nothing, as unknown things are ignored."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def mapping(value: object) -> Body:
    """An object; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def strings(value: object) -> tuple[str, ...]:
    """A string or a list of strings, as a tuple without the empty ones."""
    values: Iterable[object] = value if isinstance(value, list) else [value]
    return tuple(item for item in values if isinstance(item, str) and item)


def required(body: Body, name: str, *kinds: type[_Kind]) -> _Kind:
    """A field that must be there, with content and of one of these types, or a Refusal."""
    value = body.get(name)
    if value is None or value in ("", []):
        message = f"Missing required parameter: '{name}'."
        raise RequestError(message, param=name, code="missing_required_parameter")
    if not isinstance(value, kinds):
        raise RequestError(f"Invalid type for '{name}'.", param=name, code="invalid_type")
    return value


def limit(body: Body, *names: str) -> int | None:
    """The first of these token limits that is set, or a Refusal where it is no whole number."""
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
