"""A conversation through the chat library. It must not know what is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from openai import AsyncOpenAI, ContentFilterFinishReasonError, LengthFinishReasonError
from pydantic import BaseModel

from tests.conformance.clients.base import (
    CallMode,
    ClientReply,
    Content,
    Conversation,
    Document,
    Image,
    Options,
    Tool,
    UsageCounts,
    valid,
)

_ECHOED = ("role", "content", "refusal", "tool_calls", "reasoning_content", "reasoning_details")


class ChatConversation(Conversation):
    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        super().__init__(model)
        self._completions = client.chat.completions

    def ask(self, *content: Content) -> None:
        self.turns.append({"role": "user", "content": _content(content)})

    def recall(self, text: str, *calls: tuple[str, str, dict[str, Any]]) -> None:
        made = [
            {
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": orjson.dumps(arguments).decode()},
            }
            for id, name, arguments in calls
        ]
        turn = {"role": "assistant", "content": text or None}
        self.turns.append(turn | ({"tool_calls": made} if made else {}))

    def answer(
        self, *results: tuple[str, Sequence[Content]], wrong: frozenset[str] = frozenset()
    ) -> None:
        """Tools have texts alone here, and no way to tell that they failed."""
        for id, content in results:
            text = "\n".join(piece for piece in content if isinstance(piece, str))
            self.turns.append({"role": "tool", "tool_call_id": id, "content": text})

    async def create(self, options: Options) -> ClientReply:
        return self._take(valid(await self._completions.create(**self.fields(options))))

    async def stream(self, options: Options) -> ClientReply:
        gathered = _Gathered()
        fields = self.fields(options) | {"stream_options": {"include_usage": True}}
        async for chunk in await self._completions.create(**fields, stream=True):
            gathered.add(valid(chunk))
        self.turns.append(gathered.turn())
        return gathered.heard()

    async def helper(self, options: Options) -> ClientReply:
        extra = {"stream_options": {"include_usage": True}}
        async with self._completions.stream(**self.fields(options), **extra) as helper:
            try:
                return self._take(await helper.get_final_completion())
            except (LengthFinishReasonError, ContentFilterFinishReasonError):
                # What the library raises at these reasons, once it has everything.
                return self._take(helper.current_completion_snapshot)

    async def parse(self, form: type[BaseModel], mode: CallMode, options: Options) -> ClientReply:
        fields = self.fields(options) | {"response_format": form}
        if mode is CallMode.CREATE:
            return self._take(await self._completions.parse(**fields))
        async with self._completions.stream(**fields) as helper:
            return self._take(await helper.get_final_completion())

    def fields(self, options: Options) -> dict[str, Any]:
        system = [{"role": "system", "content": options.system}] if options.system else []
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, *self.turns],
            "max_completion_tokens": options.max_tokens,
            "tools": [_tool(tool) for tool in options.tools],
            "tool_choice": _choice(options.choice),
            "parallel_tool_calls": options.parallel,
            "reasoning_effort": options.effort,
            "stop": list(options.stop),
            "temperature": options.temperature,
            "user": options.user,
            "response_format": {"type": "json_object"} if options.json else None,
        }
        return {name: value for name, value in fields.items() if value not in (None, [])}

    def _take(self, completion: Any) -> ClientReply:
        (choice,) = completion.choices
        message = choice.message.to_dict(warnings=False)
        fields = {name: message[name] for name in _ECHOED if message.get(name) is not None}
        for call in fields.get("tool_calls", ()):
            call["function"].pop("parsed_arguments", None)
            call.pop("index", None)
        self.turns.append(fields)
        return ClientReply(
            text=message.get("content") or "",
            stop=choice.finish_reason,
            model=completion.model,
            thinking=message.get("reasoning_content") or "",
            refusal=message.get("refusal"),
            calls=_calls(fields),
            sources=_sources(message.get("annotations") or []),
            usage=_figures(completion.usage),
            reply=completion,
            parsed=getattr(choice.message, "parsed", None),
        )


class _Gathered:
    """What a plain loop over chunks gathers, as the examples of the library's manual do it."""

    def __init__(self) -> None:
        self.text = self.thinking = self.refusal = ""
        self.calls: dict[int, dict[str, Any]] = {}
        self.details: list[Any] = []
        self.annotations: list[Any] = []
        self.stop: str | None = None
        self.model = ""
        self.usage: Any = None

    def add(self, chunk: Any) -> None:
        self.model = chunk.model
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            delta = choice.delta
            more = delta.model_extra or {}
            self.text += delta.content or ""
            self.refusal += delta.refusal or ""
            self.thinking += more.get("reasoning_content") or ""
            self.details += more.get("reasoning_details") or []
            self.annotations += more.get("annotations") or []
            self.stop = choice.finish_reason or self.stop
            for piece in delta.tool_calls or ():
                self._lengthen(piece)

    def _lengthen(self, piece: Any) -> None:
        call = self.calls.setdefault(
            piece.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] += piece.id or ""
        call["function"]["name"] += piece.function.name or ""
        call["function"]["arguments"] += piece.function.arguments or ""

    def turn(self) -> dict[str, Any]:
        turn = {
            "content": self.text,
            "tool_calls": [self.calls[index] for index in sorted(self.calls)],
            "reasoning_content": self.thinking,
            "reasoning_details": self.details,
            "refusal": self.refusal,
        }
        return {"role": "assistant"} | {name: value for name, value in turn.items() if value}

    def heard(self) -> ClientReply:
        return ClientReply(
            text=self.text,
            stop=self.stop,
            model=self.model,
            thinking=self.thinking,
            refusal=self.refusal or None,
            calls=_calls(self.turn()),
            sources=_sources(self.annotations),
            usage=_figures(self.usage),
        )


def _content(content: Sequence[Content]) -> Any:
    if len(content) == 1 and isinstance(content[0], str):
        return content[0]
    return [_part(piece) for piece in content]


def _part(piece: Content) -> dict[str, Any]:
    match piece:
        case str():
            return {"type": "text", "text": piece}
        case Image():
            return {"type": "image_url", "image_url": {"url": piece.url}}
        case Document():
            return {"type": "file", "file": {"file_data": piece.url, "filename": piece.name}}


def _tool(tool: Tool) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": described}


def _choice(choice: str | None) -> Any:
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _calls(turn: dict[str, Any]) -> tuple[tuple[str, str, dict[str, Any]], ...]:
    return tuple(
        (call["id"], call["function"]["name"], orjson.loads(call["function"]["arguments"]))
        for call in turn.get("tool_calls", ())
    )


def _sources(annotations: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    cited = [annotation["url_citation"] for annotation in annotations]
    return tuple((citation["url"], citation["title"]) for citation in cited)


def _figures(usage: Any) -> UsageCounts | None:
    if usage is None:
        return None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    read, arguments_text = usage.prompt_tokens_details, usage.completion_tokens_details
    return UsageCounts(
        input=usage.prompt_tokens,
        cached=read.cached_tokens,
        kept=read.cache_write_tokens,
        output=usage.completion_tokens,
        thinking=arguments_text.reasoning_tokens,
    )
