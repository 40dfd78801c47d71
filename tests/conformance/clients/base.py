"""A conversation with a model, independent of the client library.

Each library's module keeps the history in that library's form and appends the library's final
objects to it, as programs do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from tests.support.formats.reply import Reply


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


Content = str | Image | Document


class Conversation(ABC):
    """A conversation; `turns` is its history in the library's own form. `endpoint` has the
    library's functions, all with the arguments `fields`."""

    reader: ModuleType
    form_field: str
    streaming: Mapping[str, Any] = {}
    """More arguments for streams."""

    def __init__(self, endpoint: Any, model: str) -> None:
        self.endpoint = endpoint
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

    @abstractmethod
    def collect(self, events: list[Any]) -> Any:
        """The whole reply of the events of a stream, which are checked."""

    @abstractmethod
    async def final(self, helper: Any) -> Any:
        """The whole reply that the library's helper has collected."""

    @abstractmethod
    def keep(self, reply: Any) -> None:
        """Adds the library's whole reply to the history."""

    @abstractmethod
    def parsed(self, reply: Any) -> Any:
        """The answer as the library parsed it."""

    async def receive(self, mode: CallMode, options: Options | None = None) -> Reply:
        """Requests the next reply and adds it to the conversation."""
        options = options or Options()
        match mode:
            case CallMode.CREATE:
                return await self.create(options)
            case CallMode.STREAM:
                return await self.stream(options)
            case CallMode.HELPER:
                return await self.helper(options)

    async def create(self, options: Options) -> Reply:
        return self._take(valid(await self.endpoint.create(**self.fields(options))))

    async def stream(self, options: Options) -> Reply:
        fields = self.fields(options) | {"stream": True, **self.streaming}
        events = [event async for event in await self.endpoint.create(**fields)]
        return self._take(self.collect(events))

    async def helper(self, options: Options) -> Reply:
        async with self.endpoint.stream(**self.fields(options), **self.streaming) as helper:
            return self._take(await self.final(helper))

    async def parse(
        self, form: type[BaseModel], mode: CallMode, options: Options
    ) -> tuple[Reply, Any]:
        """The answer, and as the library parses it, whole or by its helper."""
        fields = self.fields(options) | {self.form_field: form}
        if mode is CallMode.CREATE:
            reply = await self.endpoint.parse(**fields)
        else:
            async with self.endpoint.stream(**fields) as helper:
                reply = await self.final(helper)
        return self._take(reply), self.parsed(reply)

    def _take(self, reply: Any) -> Reply:
        self.keep(reply)
        read: Reply = self.reader.reply_of(reply.to_dict(warnings=False))
        return read
