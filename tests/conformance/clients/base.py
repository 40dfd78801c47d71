"""A conversation with a model, independent of the client library.

Each library's module keeps the history in that library's form and appends the library's final
objects to it, as programs do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import BaseModel


class CallMode(Enum):
    """A plain call; plain iteration over a stream; the library's helper that collects a stream."""

    CREATE = "create"
    STREAM = "stream"
    HELPER = "helper"


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str = "Does what its name says."
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True)
class Image:
    """`source` is an address, or the base64 of a PNG."""

    source: str

    @property
    def is_url(self) -> bool:
        return self.source.startswith("http")

    @property
    def url(self) -> str:
        return self.source if self.is_url else f"data:image/png;base64,{self.source}"


@dataclass(frozen=True, slots=True)
class Document:
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
class Options:
    """The parameters besides the conversation. `choice`: auto, none, required, or a tool's name."""

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
class UsageCounts:
    """A library's usage as the same five numbers: the whole prompt, of it read from and written to
    a cache; the whole output, of it reasoning."""

    input: int
    cached: int
    kept: int
    output: int
    thinking: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReply:
    """The fields of the library's final object, `reply`. `stop` is the format's value; `usage` is
    None where the library has none; `sources` are addresses and titles."""

    text: str
    stop: str | None
    model: str
    thinking: str = ""
    refusal: str | None = None
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    usage: UsageCounts | None = None
    reply: Any = None
    parsed: Any = None

    @property
    def called(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and arguments of the calls."""
        return [(name, arguments) for _, name, arguments in self.calls]


Content = str | Image | Document


class Conversation(ABC):
    """A conversation; `turns` is its history in the library's own form."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.turns: list[Any] = []

    @abstractmethod
    def ask(self, *content: Content) -> None:
        """Adds a user turn."""

    @abstractmethod
    def recall(self, text: str, *calls: tuple[str, str, dict[str, Any]]) -> None:
        """Adds an assistant turn: a text, and calls by id, name, arguments."""

    @abstractmethod
    def answer(
        self, *results: tuple[str, Sequence[Content]], wrong: frozenset[str] = frozenset()
    ) -> None:
        """Results by the id of their call, those of `wrong` being errors."""

    @abstractmethod
    def fields(self, options: Options) -> dict[str, Any]:
        """The arguments for the library's own functions."""

    async def receive(self, mode: CallMode, options: Options | None = None) -> ClientReply:
        """Requests the next reply and adds it to the conversation."""
        options = options or Options()
        match mode:
            case CallMode.CREATE:
                return await self.create(options)
            case CallMode.STREAM:
                return await self.stream(options)
            case CallMode.HELPER:
                return await self.helper(options)

    @abstractmethod
    async def create(self, options: Options) -> ClientReply: ...

    @abstractmethod
    async def stream(self, options: Options) -> ClientReply: ...

    @abstractmethod
    async def helper(self, options: Options) -> ClientReply: ...

    @abstractmethod
    async def parse(self, form: type[BaseModel], mode: CallMode, options: Options) -> ClientReply:
        """The answer as the library parses it, whole or by its helper."""
