"""A conversation through the messages library. Independent of what is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types import Message

from tests.conformance.clients.base import Content, Conversation, Document, Image, Options, Tool
from tests.support.formats import messages


class MessagesConversation(Conversation):
    reader = messages
    form_field = "output_format"

    def __init__(self, client: AsyncAnthropic, model: str) -> None:
        super().__init__(client.messages, model)

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

    def collect(self, events: list[Any]) -> Any:
        body = messages.check_events(event.to_dict() for event in events)
        return Message.model_validate(body)

    async def final(self, helper: Any) -> Any:
        return await helper.get_final_message()

    def keep(self, reply: Any) -> None:
        self.turns.append({"role": "assistant", "content": reply.content})

    def parsed(self, reply: Any) -> Any:
        return reply.parsed_output


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
