"""One way to ask and one kind of answer for the client libraries of all three formats.

Must not know which upstream answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.local_model.conftest import Gateway

CALL = {"city": "Oslo"}
RESULT = "4 degrees and rain"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`history`: a call of a tool and its result stand between two questions. `schema` is the JSON
    Schema that the answer must fit."""

    model: str
    text: str = "Say hi."
    limit: int = 24
    stop: tuple[str, ...] = ()
    history: bool = False
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`limited`: the limit of tokens ended it. Counts are tokens, the whole prompt's included."""

    model: str
    text: str
    limited: bool
    input_tokens: int
    output_tokens: int
    request_id: str | None


def ask_chat(gateway: Gateway, question: Question, *, stream: bool) -> Answer:
    messages: list[Any] = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": question.text},
    ]
    fields: dict[str, Any] = {}
    if question.history:
        arguments = '{"city":"Oslo"}'
        function = {"name": "weather", "arguments": arguments}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": RESULT},
            {"role": "user", "content": "So what?"},
        ]
        declared = {"name": "weather", "description": "Weather.", "parameters": PARAMETERS}
        fields |= {"tools": [{"type": "function", "function": declared}], "tool_choice": "none"}
    if question.stop:
        fields["stop"] = list(question.stop)
    if question.schema:
        named = {"name": "answer", "schema": question.schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": named}
    common = {"model": question.model, "max_tokens": question.limit, "messages": messages}
    with gateway.openai() as client:
        if not stream:
            completion = client.chat.completions.create(**common, **fields)
            request_id = completion._request_id
        else:
            options = {"include_usage": True}
            with client.chat.completions.stream(
                **common, **fields, stream_options=options
            ) as chunks:
                for _ in chunks:
                    pass
                completion = chunks.current_completion_snapshot
                request_id = chunks._response.headers["x-request-id"]
    [choice] = completion.choices
    assert completion.usage is not None
    return Answer(
        model=completion.model,
        text=choice.message.content or "",
        limited=choice.finish_reason == "length",
        input_tokens=completion.usage.prompt_tokens,
        output_tokens=completion.usage.completion_tokens,
        request_id=request_id,
    )


def ask_messages(gateway: Gateway, question: Question, *, stream: bool) -> Answer:
    messages: list[Any] = [{"role": "user", "content": question.text}]
    fields: dict[str, Any] = {}
    if question.history:
        call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": CALL}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": RESULT}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, {"type": "text", "text": "So what?"}]},
        ]
        tool = {"name": "weather", "description": "Weather.", "input_schema": PARAMETERS}
        fields |= {"tools": [tool], "tool_choice": {"type": "none"}}
    if question.stop:
        fields["stop_sequences"] = list(question.stop)
    if question.schema:
        form = {"type": "json_schema", "schema": question.schema}
        fields["output_config"] = {"format": form}
    common = {"model": question.model, "max_tokens": question.limit, "system": "You are brief."}
    with gateway.anthropic() as client:
        if not stream:
            message = client.messages.create(**common, **fields, messages=messages)
            request_id = message._request_id
        else:
            with client.messages.stream(**common, **fields, messages=messages) as events:
                message = events.get_final_message()
                request_id = events.response.headers["request-id"]
    usage = message.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return Answer(
        model=message.model,
        text="".join(block.text for block in message.content if block.type == "text"),
        limited=message.stop_reason == "max_tokens",
        input_tokens=usage.input_tokens + cached,
        output_tokens=usage.output_tokens,
        request_id=request_id,
    )


class ReplyFailed(Exception):
    """The stream ended with `response.failed`, which the library does not raise for."""


def ask_responses(gateway: Gateway, question: Question, *, stream: bool) -> Answer:
    items: list[Any] = [{"role": "user", "content": question.text}]
    fields: dict[str, Any] = {}
    if question.history:
        arguments = '{"city":"Oslo"}'
        call = {"type": "function_call", "call_id": "call_1", "name": "weather"}
        items += [
            call | {"arguments": arguments},
            {"type": "function_call_output", "call_id": "call_1", "output": RESULT},
            {"role": "user", "content": "So what?"},
        ]
        tool = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
        fields |= {"tools": [tool], "tool_choice": "none"}
    if question.schema:
        form = {"type": "json_schema", "name": "answer", "schema": question.schema}
        fields["text"] = {"format": form}
    common = {
        "model": question.model,
        "max_output_tokens": question.limit,
        "instructions": "You are brief.",
        "input": items,
    }
    with gateway.openai() as client:
        if not stream:
            response = client.responses.create(**common, **fields)
            request_id = response._request_id
        else:
            with client.responses.create(**common, **fields, stream=True) as events:
                request_id = events.response.headers["x-request-id"]
                last = [event for event in events][-1]
            if last.type == "response.failed":
                raise ReplyFailed(last.response.error)
            response = last.response
    assert response.usage is not None
    return Answer(
        model=response.model,
        text=response.output_text,
        limited=response.status == "incomplete",
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        request_id=request_id,
    )


ASK: dict[str, Callable[..., Answer]] = {
    "chat": ask_chat,
    "messages": ask_messages,
    "responses": ask_responses,
}
