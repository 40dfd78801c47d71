"""A conversation through the chat library. Independent of what is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import orjson
from openai import AsyncOpenAI, ContentFilterFinishReasonError, LengthFinishReasonError
from openai.types.chat import ChatCompletion

from tests.conformance.clients.base import Content, Conversation, Document, Image, Options, Tool
from tests.support.formats import chat

_ECHOED = ("role", "content", "refusal", "tool_calls", "reasoning_content", "reasoning_details")


class ChatConversation(Conversation):
    reader = chat
    form_field = "response_format"
    streaming: ClassVar = {"stream_options": {"include_usage": True}}

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        super().__init__(client.chat.completions, model)

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

    def collect(self, events: list[Any]) -> Any:
        chunks = [event.to_dict() for event in events]
        # Upstreams may say null here before calls, and on the native lane it is passed on.
        if (delta := chunks[0]["choices"][0]["delta"])["content"] is None:
            delta["content"] = ""
        body = chat.check_events(chunks, include_usage=True)
        return ChatCompletion.model_validate(body)

    async def final(self, helper: Any) -> Any:
        try:
            return await helper.get_final_completion()
        except (LengthFinishReasonError, ContentFilterFinishReasonError):
            # What the library raises at these reasons, once it has everything.
            return helper.current_completion_snapshot

    def keep(self, reply: Any) -> None:
        message = reply.choices[0].message.to_dict(warnings=False)
        turn = {name: message[name] for name in _ECHOED if message.get(name) is not None}
        for call in turn.get("tool_calls", ()):
            call["function"].pop("parsed_arguments", None)
            call.pop("index", None)
        self.turns.append(turn)

    def parsed(self, reply: Any) -> Any:
        return reply.choices[0].message.parsed


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
