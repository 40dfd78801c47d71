"""One conversation of a program with a model, as tests hold it, whichever library carries it.

It must not know any format; each library's own module holds the history in that library's way and
puts the library's final objects back into it, as programs do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import BaseModel


class How(Enum):
    """Whole; by plain iteration over a stream; by the library's helper that adds it up."""

    CREATE = "create"
    STREAM = "stream"
    HELPER = "helper"


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str = "Does what its name says."
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True)
class Picture:
    """`source` is an address, or the base64 of a PNG."""

    source: str

    @property
    def is_url(self) -> bool:
        return self.source.startswith("http")

    @property
    def url(self) -> str:
        return self.source if self.is_url else f"data:image/png;base64,{self.source}"


@dataclass(frozen=True, slots=True)
class Paper:
    """A PDF in base64, and its name."""

    data: str
    name: str

    @property
    def url(self) -> str:
        return f"data:application/pdf;base64,{self.data}"


def valid(reply: Any) -> Any:
    """An object of a library, which builds them without a look, with everything in its place."""
    type(reply).model_validate(reply.to_dict())
    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked beside the conversation. `choice`: auto, none, required, or a tool's name."""

    system: str | None = None
    tools: tuple[Tool, ...] = ()
    choice: str | None = None
    parallel: bool | None = None
    effort: str | None = None
    budget: int | None = None
    max_tokens: int = 4000
    stop: tuple[str, ...] = ()
    temperature: float | None = None
    user: str | None = None
    json: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """A library's usage as the same five numbers: the whole prompt, of it read from and written to
    a cache; the whole output, of it reasoning."""

    input: int
    cached: int
    kept: int
    output: int
    thinking: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the library's final object, `reply`, says. `stop` is in the format's own words; `usage`
    is None where the library shows none; `sources` are addresses and titles."""

    text: str
    stop: str | None
    model: str
    thinking: str = ""
    refusal: str | None = None
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    usage: Figures | None = None
    reply: Any = None
    parsed: Any = None

    @property
    def called(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and arguments of the calls."""
        return [(name, arguments) for _, name, arguments in self.calls]


Content = str | Picture | Paper


class Talk(ABC):
    """A conversation; `turns` is its history in the library's own form."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.turns: list[Any] = []

    @abstractmethod
    def ask(self, *content: Content) -> None:
        """The user speaks."""

    @abstractmethod
    def recall(self, text: str, *calls: tuple[str, str, dict[str, Any]]) -> None:
        """The assistant spoke in some other program: a text, and calls by id, name, arguments."""

    @abstractmethod
    def answer(
        self, *results: tuple[str, Sequence[Content]], wrong: frozenset[str] = frozenset()
    ) -> None:
        """Results by the id of their call, those of `wrong` being errors."""

    @abstractmethod
    def fields(self, wish: Wish) -> dict[str, Any]:
        """The arguments for the library's own functions."""

    async def hear(self, how: How, wish: Wish | None = None) -> Heard:
        """What the model says next, which then belongs to the conversation."""
        wish = wish or Wish()
        match how:
            case How.CREATE:
                return await self.create(wish)
            case How.STREAM:
                return await self.stream(wish)
            case How.HELPER:
                return await self.helper(wish)

    @abstractmethod
    async def create(self, wish: Wish) -> Heard: ...

    @abstractmethod
    async def stream(self, wish: Wish) -> Heard: ...

    @abstractmethod
    async def helper(self, wish: Wish) -> Heard: ...

    @abstractmethod
    async def parse(self, form: type[BaseModel], how: How, wish: Wish) -> Heard:
        """The answer as the library parses it, whole or by its helper."""
