"""The native lane's requests: the client's own body, for another model's name.

Reasoning and searches of upstreams of other formats may stand in its history; they go back to whom
they came from and are left out for everybody else. It must not know how requests are rendered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.core.parts import Part, ServerToolCall, ServerToolResult, Thinking
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.wire.fields import Payload
from gateway.wire.messages.content import restored_thinking
from gateway.wire.messages.conversation import lacks_leading_thinking
from gateway.wire.messages.reasoning import forget_clearing
from gateway.wire.messages.search import was_foreign


def patch_prompt(body: Payload, prompt: Prompt, target: Target) -> Payload:
    """A shallow copy; only messages that hold such parts are copied too."""
    patched = body | {"model": target.model}
    if not any(_holds_travelled(turn) for turn in prompt.turns if turn.role is Role.ASSISTANT):
        return patched
    patched["messages"] = list(_restored(body["messages"], prompt.turns, target))
    thinking = body.get("thinking")
    fixed = thinking is not None and thinking["type"] == "enabled"
    if fixed and lacks_leading_thinking(patched["messages"]):
        patched["thinking"] = {"type": "disabled"}
        forget_clearing(patched)
    return patched


def _holds_travelled(turn: Turn) -> bool:
    return any(map(_has_travelled, turn.parts))


def _has_travelled(part: Part) -> bool:
    if isinstance(part, Thinking):
        return part.origin is not None
    return isinstance(part, ServerToolCall | ServerToolResult) and was_foreign(part)


def _restored(
    messages: Sequence[Payload], turns: Sequence[Turn], target: Target
) -> Iterator[Payload]:
    """The messages without what this upstream never said; one that is nothing else is left out."""
    for message, turn in zip(messages, turns[-len(messages) :], strict=True):
        if not _holds_travelled(turn):
            yield message
        elif content := list(_kept(message["content"], turn.parts, target)):
            yield message | {"content": content}


def _kept(blocks: Sequence[Any], parts: Sequence[Part], target: Target) -> Iterator[Any]:
    for block, part in zip(blocks, parts, strict=True):
        if not _has_travelled(part):
            yield block
        elif isinstance(part, Thinking) and (thinking := restored_thinking(part, target)):
            yield thinking
