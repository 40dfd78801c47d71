"""A prompt's turns as `system` and `messages`, in the order that messages upstreams insist on.

The first message is a user's, roles take turns, results come first in the message after their
calls, and nothing is empty (Messages, "Messages", "Tool use"). It must not know tools or options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload
from gateway.wire.history import (
    PlainDialogue,
    introduced,
    leading_system,
    paired,
    plain_dialogue,
)
from gateway.wire.messages.content import Content, own_fields

_SYSTEM: Final = (Role.SYSTEM, Role.DEVELOPER)
_THINKING: Final = ("thinking", "redacted_thinking")
_ROLES: Final = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.SYSTEM: "system"}
_EMPTY: Final = "(empty)"
_OPENING: Final = "."
_GO_ON: Final = "Continue."


class Conversation(NamedTuple):
    system: list[Payload]
    messages: list[Payload]


def render_turns(prompt: Prompt, target: Target, losses: Losses) -> Conversation:
    plain = plain_dialogue(prompt.turns)
    if plain is not None and plain.said[0][0] is Role.USER:
        return _plain(plain)
    content = Content(prompt, target, losses)
    leading, rest = leading_system([*introduced(prompt.turns, losses)])
    system = [block for turn in leading for block in content.blocks(turn)]
    turns = paired(rest)
    messages = _alternating(_placed(turns, system_turns=target.system_turns), content)
    if not messages and system:
        messages = [{"role": "user", "content": [system.pop()]}]
    if not messages or messages[0]["role"] == "assistant":
        messages.insert(0, _said(_OPENING))
    _accompany_documents(messages)
    return Conversation(system, messages)


def _plain(plain: PlainDialogue) -> Conversation:
    """The same in one step, where there is nothing to put in order."""
    messages: list[Payload] = []
    before = None
    for speaker, text in plain.said:
        if speaker is before:
            messages[-1]["content"].append(_text(text))
        else:
            messages.append({"role": _ROLES[speaker], "content": [_text(text)]})
        before = speaker
    return Conversation([_text(text) for text in plain.system], messages)


def end_with_user(messages: list[Payload], losses: Losses, *, prefill: bool) -> None:
    """Where the assistant has the last word, which the model is to go on from: `prefill` tells
    whether it can."""
    last = messages[-1]
    if last["role"] != "assistant":
        return
    block = last["content"][-1]
    if prefill and block["type"] == "text":
        last["content"][-1] = block | {"text": block["text"].rstrip()}
    else:
        losses.lose("prefill")
        messages.append(_said(_GO_ON))


def lacks_leading_thinking(messages: Sequence[Payload]) -> bool:
    """Whether a conversation ends within a tool loop that does not begin with thinking, as fixed
    thinking budgets demand. Contents may be strings."""
    first: Payload | None = None
    looping = False
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message
        elif message["role"] == "user":
            if not _holds(message, ("tool_result",)):
                break
            looping = True
    if first is None or not looping:
        return False
    content = first["content"]
    return not content or not isinstance(content, list) or content[0]["type"] not in _THINKING


def _placed(turns: Sequence[Turn], *, system_turns: bool) -> list[Turn]:
    """The turns with the system's words where they may stand: between a user's turn and the
    assistant's. Elsewhere, or where the model knows no such turns, the user's message has them."""
    placed: list[Turn] = []
    for index, turn in enumerate(turns):
        if turn.role in _SYSTEM:
            after = next((each.role for each in turns[index:] if each.role not in _SYSTEM), None)
            legal = system_turns and placed and placed[-1].role is not Role.ASSISTANT
            legal = legal and after is not Role.USER
            legal = legal and all(isinstance(part, Text) for part in turn.parts)
            turn = replace(turn, role=Role.SYSTEM) if legal else _reminder(turn)
        placed.append(turn)
    return placed


def _reminder(turn: Turn) -> Turn:
    parts = tuple(
        replace(part, text=f"<system-reminder>{part.text}</system-reminder>")
        if isinstance(part, Text) and part.text.strip()
        else part
        for part in turn.parts
    )
    return replace(turn, role=Role.USER, parts=parts)


def _alternating(turns: Sequence[Turn], content: Content) -> list[Payload]:
    messages: list[Payload] = []
    for turn in turns:
        role = _ROLES[turn.role]
        blocks = content.blocks(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks or role == "user":
            messages.append({"role": role, "content": blocks} | own_fields(turn.extra))
    for message in messages:
        message["content"] = message["content"] or [_text(_EMPTY)]
    return messages


def _accompany_documents(messages: Sequence[Payload]) -> None:
    """Some models refuse documents without a word beside them."""
    for message in messages:
        if all(block["type"] == "document" for block in message["content"]):
            message["content"].append(_text(_OPENING))


def _said(text: str) -> Payload:
    return {"role": "user", "content": [_text(text)]}


def _text(text: str) -> Payload:
    return {"type": "text", "text": text}


def _holds(message: Payload, kinds: Sequence[str]) -> bool:
    content: Any = message["content"]
    return isinstance(content, list) and any(block["type"] in kinds for block in content)
