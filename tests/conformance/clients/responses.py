"""A conversation through the responses library, which keeps nothing at the vendor's.

It must not know what is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from openai import AsyncOpenAI
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


class ResponsesConversation(Conversation):
    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        super().__init__(model)
        self._responses = client.responses

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

    async def create(self, options: Options) -> ClientReply:
        return self._take(valid(await self._responses.create(**self.fields(options))))

    async def stream(self, options: Options) -> ClientReply:
        """Coding agents believe the items that are done, and the terminal event."""
        done: list[Any] = []
        final = None
        async for event in await self._responses.create(**self.fields(options), stream=True):
            valid(event)
            if event.type == "response.output_item.done":
                done.append(event.item)
            if event.type in ("response.completed", "response.incomplete"):
                final = event.response
        assert final is not None, "the stream has no terminal event"
        assert [item.to_dict() for item in done] == [item.to_dict() for item in final.output]
        return self._take(final)

    async def helper(self, options: Options) -> ClientReply:
        final = None
        async with self._responses.stream(**self.fields(options)) as helper:
            async for event in helper:
                if event.type == "response.incomplete":
                    final = event.response
            # The helper has no final response for what is not completed.
            return self._take(final or await helper.get_final_response())

    async def parse(self, form: type[BaseModel], mode: CallMode, options: Options) -> ClientReply:
        fields = self.fields(options) | {"text_format": form}
        if mode is CallMode.CREATE:
            return self._take(await self._responses.parse(**fields))
        async with self._responses.stream(**fields) as helper:
            return self._take(await helper.get_final_response())

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

    def _take(self, response: Any) -> ClientReply:
        self.turns += response.output
        results = [
            part for item in response.output if item.type == "message" for part in item.content
        ]
        summaries = [
            part.text
            for item in response.output
            if item.type == "reasoning"
            for part in item.summary
        ]
        refusals = [part.refusal for part in results if part.type == "refusal"]
        calls = [item for item in response.output if item.type == "function_call"]
        reason = response.incomplete_details.reason if response.incomplete_details else None
        return ClientReply(
            text=response.output_text,
            stop=reason or response.status,
            model=response.model,
            thinking="".join(summaries),
            refusal="".join(refusals) or None,
            calls=tuple((call.call_id, call.name, orjson.loads(call.arguments)) for call in calls),
            sources=tuple(
                (annotation.url, annotation.title)
                for part in results
                if part.type == "output_text"
                for annotation in part.annotations
            ),
            usage=_figures(response.usage),
            reply=response,
            parsed=getattr(response, "output_parsed", None),
        )


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


def _figures(usage: Any) -> UsageCounts:
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    return UsageCounts(
        input=usage.input_tokens,
        cached=usage.input_tokens_details.cached_tokens,
        kept=usage.input_tokens_details.cache_write_tokens,
        output=usage.output_tokens,
        thinking=usage.output_tokens_details.reasoning_tokens,
    )
