"""A conversation through the messages library. It must not know what is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from anthropic import AsyncAnthropic
from anthropic.types import Message
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


class MessagesConversation(Conversation):
    def __init__(self, client: AsyncAnthropic, model: str) -> None:
        super().__init__(model)
        self._messages = client.messages

    def ask(self, *content: Content) -> None:
        self._user(_blocks(content))

    def recall(self, text: str, *calls: tuple[str, str, dict[str, Any]]) -> None:
        result = _blocks([text] if text else [])
        result += [
            {"type": "tool_use", "id": id, "name": name, "input": arguments}
            for id, name, arguments in calls
        ]
        self.turns.append({"role": "assistant", "content": result})

    def answer(
        self, *results: tuple[str, Sequence[Content]], wrong: frozenset[str] = frozenset()
    ) -> None:
        self._user(
            [
                {
                    "type": "tool_result",
                    "tool_use_id": id,
                    "content": _blocks(content),
                    "is_error": id in wrong,
                }
                for id, content in results
            ]
        )

    def _user(self, blocks: list[dict[str, Any]]) -> None:
        """What the user sends before the assistant speaks again is one message."""
        if self.turns and self.turns[-1]["role"] == "user":
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": "user", "content": blocks})

    async def create(self, options: Options) -> ClientReply:
        return self._take(valid(await self._messages.create(**self.fields(options))))

    async def stream(self, options: Options) -> ClientReply:
        gathered = _Gathered()
        async for event in await self._messages.create(**self.fields(options), stream=True):
            gathered.add(valid(event))
        return self._take(gathered.message())

    async def helper(self, options: Options) -> ClientReply:
        async with self._messages.stream(**self.fields(options)) as helper:
            return self._take(await helper.get_final_message())

    async def parse(self, form: type[BaseModel], mode: CallMode, options: Options) -> ClientReply:
        fields = self.fields(options) | {"output_format": form}
        if mode is CallMode.CREATE:
            return self._take(await self._messages.parse(**fields))
        async with self._messages.stream(**fields) as helper:
            return self._take(await helper.get_final_message())

    def fields(self, options: Options) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": self.turns,
            "max_tokens": options.max_tokens,
            "system": options.system,
            "tools": [_tool(tool) for tool in options.tools],
            "tool_choice": _choice(options.choice, options.parallel),
            "thinking": _thinking(options),
            "output_config": {"effort": options.effort} if options.effort else None,
            "stop_sequences": list(options.stop),
            "metadata": {"user_id": options.user} if options.user else None,
        }
        if options.temperature is not None:
            # The library's own version of the format has no such field, the older one has.
            fields["extra_body"] = {"temperature": options.temperature}
            fields["extra_headers"] = {"anthropic-version": "2023-06-01"}
        return {name: value for name, value in fields.items() if value not in (None, [])}

    def _take(self, message: Any) -> ClientReply:
        self.turns.append({"role": "assistant", "content": message.content})
        blocks = message.content
        details = message.stop_details
        return ClientReply(
            text="".join(block.text for block in blocks if block.type == "text"),
            stop=message.stop_reason,
            model=message.model,
            thinking="".join(block.thinking for block in blocks if block.type == "thinking"),
            refusal=details.explanation if details else None,
            calls=tuple(
                (block.id, block.name, block.input) for block in blocks if block.type == "tool_use"
            ),
            sources=tuple(
                (citation.url, citation.title)
                for block in blocks
                if block.type == "text"
                for citation in block.citations or ()
            ),
            usage=_figures(message.usage),
            reply=message,
            parsed=getattr(message, "parsed_output", None),
        )


class _Gathered:
    """What a plain loop over events gathers, one block after the other."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._json = ""
        self._stopped = False

    def add(self, event: Any) -> None:
        assert not self._stopped
        match event.type:
            case "message_start":
                assert not self._message
                self._message = event.message.to_dict()
            case "content_block_start":
                assert event.index == len(self._message["content"])
                self._message["content"].append(event.content_block.to_dict())
                self._json = ""
            case "content_block_delta":
                assert event.index == len(self._message["content"]) - 1
                self._lengthen(self._message["content"][-1], event.delta.to_dict())
            case "content_block_stop" if self._json:
                self._message["content"][-1]["input"] = orjson.loads(self._json)
            case "message_delta":
                counted = {k: v for k, v in event.usage.to_dict().items() if v is not None}
                self._message["usage"] |= counted
                self._message |= event.delta.to_dict()
            case "message_stop":
                self._stopped = True

    def _lengthen(self, block: dict[str, Any], delta: dict[str, Any]) -> None:
        match delta:
            case {"partial_json": piece}:
                self._json += piece
            case {"signature": signature}:
                block["signature"] = signature
            case {"text": piece}:
                block["text"] += piece
            case {"citation": citation}:
                block["citations"] = [*(block.get("citations") or ()), citation]
            case {"thinking": piece}:
                block["thinking"] += piece

    def message(self) -> Message:
        assert self._stopped, "the stream has no message_stop"
        return Message.model_validate(self._message)


def _blocks(content: Sequence[Content]) -> list[dict[str, Any]]:
    return [_block(piece) for piece in content]


def _block(piece: Content) -> dict[str, Any]:
    match piece:
        case str():
            return {"type": "text", "text": piece}
        case Image():
            return {"type": "image", "source": _source(piece)}
        case Document():
            source = {"type": "base64", "media_type": "application/pdf", "data": piece.data}
            return {"type": "document", "source": source, "title": piece.name}


def _source(picture: Image) -> dict[str, Any]:
    if picture.is_url:
        return {"type": "url", "url": picture.url}
    return {"type": "base64", "media_type": "image/png", "data": picture.source}


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _choice(choice: str | None, parallel: bool | None) -> dict[str, Any] | None:
    if choice is None and parallel is None:
        return None
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    chosen: dict[str, Any] = {"type": kinds.get(choice or "auto", "tool")}
    if chosen["type"] == "tool":
        chosen["name"] = choice
    if parallel is False:
        chosen["disable_parallel_tool_use"] = True
    return chosen


def _thinking(options: Options) -> dict[str, Any] | None:
    if options.budget:
        return {"type": "enabled", "budget_tokens": options.budget}
    return {"type": "adaptive", "display": "summarized"} if options.effort else None


def _figures(usage: Any) -> UsageCounts:
    cached, kept = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    details = usage.output_tokens_details
    return UsageCounts(
        input=usage.input_tokens + cached + kept,
        cached=cached,
        kept=kept,
        output=usage.output_tokens,
        thinking=details.thinking_tokens if details else 0,
    )
