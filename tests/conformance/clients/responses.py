"""A conversation through the responses library, which keeps nothing at the vendor's.

Independent of what is tested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import orjson
from openai import AsyncOpenAI

from tests.conformance.clients.base import (
    Content,
    Conversation,
    Document,
    Image,
    Options,
    Tool,
    valid,
)
from tests.support.formats import responses


class ResponsesConversation(Conversation):
    reader = responses
    form_field = "text_format"

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        super().__init__(client.responses, model)

    def ask(self, *content: Content) -> None:
        self.turns.append({"role": "user", "content": _parts(content)})

    def recall(self, text: str, *calls: tuple[str, str, dict[str, Any]]) -> None:
        if text:
            self.turns.append({"role": "assistant", "content": text})
        self.turns += [
            {
                "type": "function_call",
                "call_id": id,
                "name": name,
                "arguments": orjson.dumps(arguments).decode(),
            }
            for id, name, arguments in calls
        ]

    def answer(
        self, *results: tuple[str, Sequence[Content]], wrong: frozenset[str] = frozenset()
    ) -> None:
        """There is no way here to tell that a tool failed."""
        for id, content in results:
            alone = len(content) == 1 and isinstance(content[0], str)
            output = content[0] if alone else _parts(content)
            self.turns.append({"type": "function_call_output", "call_id": id, "output": output})

    def fields(self, options: Options) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self.model,
            "input": self.turns,
            "instructions": options.system,
            "max_output_tokens": options.max_tokens,
            "tools": [_tool(tool) for tool in options.tools],
            "tool_choice": _choice(options.choice),
            "parallel_tool_calls": options.parallel,
            "reasoning": {"effort": options.effort, "summary": "auto"} if options.effort else None,
            "temperature": options.temperature,
            "user": options.user,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "text": {"format": {"type": "json_object"}} if options.json else None,
        }
        return {name: value for name, value in fields.items() if value not in (None, [])}

    def collect(self, events: list[Any]) -> Any:
        """Coding agents believe the items that are done, and the terminal event."""
        of_type: dict[str, list[Any]] = defaultdict(list)
        for event in map(valid, events):
            of_type[event.type].append(event)
        (last,) = of_type["response.completed"] + of_type["response.incomplete"]
        done = [event.item.to_dict() for event in of_type["response.output_item.done"]]
        assert done == [item.to_dict() for item in last.response.output]
        return last.response

    async def final(self, helper: Any) -> Any:
        # The helper has no final response for what is not completed.
        cut = [event.response async for event in helper if event.type == "response.incomplete"]
        return cut[0] if cut else await helper.get_final_response()

    def keep(self, reply: Any) -> None:
        self.turns += reply.output

    def parsed(self, reply: Any) -> Any:
        return reply.output_parsed


def _parts(content: Sequence[Content]) -> list[dict[str, Any]]:
    return [_part(delta) for delta in content]


def _part(delta: Content) -> dict[str, Any]:
    match delta:
        case str():
            return {"type": "input_text", "text": delta}
        case Image():
            return {"type": "input_image", "image_url": delta.url, "detail": "auto"}
        case Document():
            return {"type": "input_file", "file_data": delta.url, "filename": delta.name}


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": False,
    }


def _choice(choice: str | None) -> Any:
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}
