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
from gateway.wire.messages.content import restore_thinking
from gateway.wire.messages.conversation import missing_leading_thinking
from gateway.wire.messages.reasoning import remove_clear_thinking
from gateway.wire.messages.search import is_foreign_search


def patch_prompt(body: Payload, prompt: Prompt, target: Target) -> Payload:
    """A shallow copy; only messages that hold such parts are copied too."""
    patched = body | {"model": target.model}
    if not any(_has_foreign_parts(turn) for turn in prompt.turns if turn.role is Role.ASSISTANT):
        return patched
    patched["messages"] = list(_restore_messages(body["messages"], prompt.turns, target))
    thinking = body.get("thinking")
    fixed = thinking is not None and thinking["type"] == "enabled"
    if fixed and missing_leading_thinking(patched["messages"]):
        patched["thinking"] = {"type": "disabled"}
        remove_clear_thinking(patched)
    return patched


def _has_foreign_parts(turn: Turn) -> bool:
    return any(map(_is_foreign, turn.parts))


def _is_foreign(part: Part) -> bool:
    if isinstance(part, Thinking):
        return part.origin is not None
    return isinstance(part, ServerToolCall | ServerToolResult) and is_foreign_search(part)


def _restore_messages(
    messages: Sequence[Payload], turns: Sequence[Turn], target: Target
) -> Iterator[Payload]:
    """The messages without what this upstream never said; one that is nothing else is left out."""
    for message, turn in zip(messages, turns[-len(messages) :], strict=True):
        if not _has_foreign_parts(turn):
            yield message
        elif content := list(_restore_blocks(message["content"], turn.parts, target)):
            yield message | {"content": content}


def _restore_blocks(blocks: Sequence[Any], parts: Sequence[Part], target: Target) -> Iterator[Any]:
    for block, part in zip(blocks, parts, strict=True):
        if not _is_foreign(part):
            yield block
        elif isinstance(part, Thinking) and (thinking := restore_thinking(part, target)):
            yield thinking
