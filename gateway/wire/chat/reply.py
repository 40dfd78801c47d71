"""Whole chat replies. It must not know how an answer was asked for.

A whole body means what one big chunk means, so the stream's decoder reads whatever is unusual in
one. The usual is read without it. Parsed and folded replies are equal: the tests hold them to it.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.events import StopReason
from gateway.core.parts import CallKind, Part, Refusal, Text, Thinking, ToolCall
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, collect_reply
from gateway.core.usage import Usage
from gateway.wire.assembly import normalize_stop
from gateway.wire.chat.calls import parse_call
from gateway.wire.chat.reasoning import ReasoningDetails
from gateway.wire.chat.spoken import (
    Annotations,
    CallRenderer,
    finish_reason,
    uses_legacy_functions,
    part_name,
    reply_id,
)
from gateway.wire.chat.stream import ChatDecoder, parse_finish_reason
from gateway.wire.chat.usage import parse_usage, render_usage
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_str

_RARE_FIELDS: Final = ("function_call", "refusal", "reasoning_details", "annotations")


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or has no choice in it."""
    message = _simple_message(body)
    parts = _simple_parts(message) if message is not None else None
    if parts is None:
        return _parse_with_decoder(body)
    called = any([type(part) is ToolCall for part in parts])
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=tuple(parts),
        stop=normalize_stop(parse_finish_reason(body["choices"][0].get("finish_reason")), called),
        usage=parse_usage(body.get("usage") or None),
    )


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    message = _simple_message(body)
    if message is not None and message.get("content") and not message.get("tool_calls"):
        stop = parse_finish_reason(body["choices"][0].get("finish_reason"))
        return stop, parse_usage(body.get("usage") or None)
    reply = parse_reply(body)
    return reply.stop, reply.usage


def _parse_with_decoder(body: Payload) -> Reply:
    choices = body.get("choices")
    chunk = body
    if isinstance(choices, list):
        chunk = body | {"choices": [_as_delta(choice) for choice in choices]}
    decoder = ChatDecoder()
    return collect_reply([*decoder.decode(b"", chunk), *decoder.done()])


def _simple_message(body: Payload) -> Payload | None:
    """The message of a body that holds nothing but one choice, and in it nothing but thoughts, text
    and calls; None of any other."""
    choices = body.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
        return None
    if body.get("error") or body.get("object") == "error" or choices[0].get("index"):
        return None
    message = choices[0].get("message")
    return message if type(message) is dict and not any(map(message.get, _RARE_FIELDS)) else None


def _simple_parts(message: Payload) -> list[Part] | None:
    """What the decoder makes of such a message; None where that has to be left to it."""
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    content, calls = message.get("content"), message.get("tool_calls")
    parts: list[Part] = []
    if thoughts and isinstance(thoughts, str):
        parts.append(Thinking(thoughts))
    if isinstance(content, list):
        return None
    if content and isinstance(content, str):
        parts.append(Text(content))
    if not calls:
        return parts
    read = [parse_call(call) for call in calls] if isinstance(calls, list) else [None]
    known = [call for call in read if call is not None]
    return [*parts, *known] if len(known) == len(read) else None


def _as_delta(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return choice
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message = message | {
            "tool_calls": [
                call | {"index": index} if isinstance(call, dict) else call
                for index, call in enumerate(calls)
            ]
        }
    return choice | {"delta": message}


def render_reply(reply: Reply, prompt: Prompt, stamp: ReplyMetadata) -> tuple[Payload, set[str]]:
    """The body, and the names of what the format could not say."""
    spoken = _MessageBuilder(prompt, stamp)
    for part in reply.parts:
        spoken.add(part)
    usage = reply.usage or Usage(input_tokens=stamp.input_tokens)
    body = {
        "id": reply_id(stamp),
        "object": "chat.completion",
        "created": stamp.created,
        "model": prompt.model,
        "choices": [spoken.choice(reply.stop)],
        "usage": render_usage(usage),
        "system_fingerprint": None,
    }
    return body, spoken.dropped


class _MessageBuilder:
    """The one choice of a reply as its parts add up to it."""

    __slots__ = (
        *("_annotations", "_calls", "_content", "_reasoning_details", "_legacy_functions", "_refusals"),
        *("_reasoning", "_tool_calls", "dropped"),
    )

    def __init__(self, prompt: Prompt, stamp: ReplyMetadata) -> None:
        self._legacy_functions = uses_legacy_functions(prompt)
        self._calls = CallRenderer(stamp)
        self._tool_calls: list[Payload] = []
        self._reasoning_details = ReasoningDetails(stamp.origin)
        self._annotations = Annotations()
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._refusals: list[str] = []
        self.dropped: set[str] = set()

    def add(self, part: Part) -> None:
        match part:
            case Text(text, citations):
                self._content.append(text)
                self._annotations.add(citations, len(text), self.dropped)
            case Thinking(text, signature, redacted):
                self._reasoning.append(text)
                self._reasoning_details.add(text, signature, redacted=redacted)
            case Refusal(text):
                self._refusals.append(text)
            case ToolCall() if self._legacy_functions and self._tool_calls:
                self.dropped.add("tool_calls")
            case ToolCall(arguments=arguments, kind=kind):
                if kind is CallKind.FUNCTION:
                    arguments = arguments or "{}"
                self._tool_calls.append(self._calls.render(part, arguments))
            case _:
                self.dropped.add(part_name(part))

    def choice(self, stop: StopReason) -> Payload:
        content, refusal = "".join(self._content), "".join(self._refusals)
        silent = bool(self._tool_calls or refusal) and not content
        message: Payload = {
            "role": "assistant",
            "content": None if silent else content,
            "refusal": refusal or None,
            "annotations": self._annotations.entries,
        }
        if thoughts := "\n\n".join(filter(None, self._reasoning)):
            message["reasoning_content"] = thoughts
        if details := self._reasoning_details.entries:
            message["reasoning_details"] = details
        if self._tool_calls and self._legacy_functions:
            message["function_call"] = self._tool_calls[0]["function"]
        elif self._tool_calls:
            message["tool_calls"] = self._tool_calls
        finish = finish_reason(
            stop,
            has_calls=bool(self._tool_calls),
            has_refusal=bool(refusal),
            legacy_functions=self._legacy_functions,
        )
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
