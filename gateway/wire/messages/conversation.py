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
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.history import (
    PlainDialogue,
    inline_names,
    split_leading_system,
    pair_tool_results,
    plain_dialogue,
)
from gateway.wire.messages.content import ContentRenderer, native_fields

_SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)
_THINKING_TYPES: Final = ("thinking", "redacted_thinking")
_ROLES: Final = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.SYSTEM: "system"}
_EMPTY_TEXT: Final = "(empty)"
_FIRST_USER_TEXT: Final = "."
_CONTINUE_TEXT: Final = "Continue."


class Conversation(NamedTuple):
    system: list[Payload]
    messages: list[Payload]


def render_messages(prompt: Prompt, target: Target, losses: Dropped) -> Conversation:
    plain = plain_dialogue(prompt.turns)
    if plain is not None and plain.messages[0][0] is Role.USER:
        return _render_plain_dialogue(plain)
    content = ContentRenderer(prompt, target, losses)
    leading, rest = split_leading_system([*inline_names(prompt.turns, losses)])
    system = [block for turn in leading for block in content.render(turn)]
    turns = pair_tool_results(rest)
    messages = _alternate_roles(_place_system(turns, system_turns=target.system_turns), content)
    if not messages and system:
        messages = [{"role": "user", "content": [system.pop()]}]
    if not messages or messages[0]["role"] == "assistant":
        messages.insert(0, _user_message(_FIRST_USER_TEXT))
    _add_text_to_documents(messages)
    return Conversation(system, messages)


def _render_plain_dialogue(plain: PlainDialogue) -> Conversation:
    """The same in one step, where there is nothing to put in order."""
    messages: list[Payload] = []
    before = None
    for speaker, text in plain.messages:
        if speaker is before:
            messages[-1]["content"].append(_text_block(text))
        else:
            messages.append({"role": _ROLES[speaker], "content": [_text_block(text)]})
        before = speaker
    return Conversation([_text_block(text) for text in plain.system], messages)


def end_with_user(messages: list[Payload], losses: Dropped, *, prefill: bool) -> None:
    """Where the assistant has the last word, which the model is to go on from: `prefill` tells
    whether it can."""
    last = messages[-1]
    if last["role"] != "assistant":
        return
    block = last["content"][-1]
    if prefill and block["type"] == "text":
        last["content"][-1] = block | {"text": block["text"].rstrip()}
    else:
        losses.drop("prefill")
        messages.append(_user_message(_CONTINUE_TEXT))


def missing_leading_thinking(messages: Sequence[Payload]) -> bool:
    """Whether a conversation ends within a tool loop that does not begin with thinking, as fixed
    thinking budgets demand. Contents may be strings."""
    first: Payload | None = None
    looping = False
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message
        elif message["role"] == "user":
            if not _has_block(message, ("tool_result",)):
                break
            looping = True
    if first is None or not looping:
        return False
    content = first["content"]
    return not content or not isinstance(content, list) or content[0]["type"] not in _THINKING_TYPES


def _place_system(turns: Sequence[Turn], *, system_turns: bool) -> list[Turn]:
    """The turns with the system's words where they may stand: between a user's turn and the
    assistant's. Elsewhere, or where the model knows no such turns, the user's message has them."""
    placed: list[Turn] = []
    for index, turn in enumerate(turns):
        if turn.role in _SYSTEM_ROLES:
            after = next((each.role for each in turns[index:] if each.role not in _SYSTEM_ROLES), None)
            legal = system_turns and placed and placed[-1].role is not Role.ASSISTANT
            legal = legal and after is not Role.USER
            legal = legal and all(isinstance(part, Text) for part in turn.parts)
            turn = replace(turn, role=Role.SYSTEM) if legal else _as_reminder(turn)
        placed.append(turn)
    return placed


def _as_reminder(turn: Turn) -> Turn:
    parts = tuple(
        replace(part, text=f"<system-reminder>{part.text}</system-reminder>")
        if isinstance(part, Text) and part.text.strip()
        else part
        for part in turn.parts
    )
    return replace(turn, role=Role.USER, parts=parts)


def _alternate_roles(turns: Sequence[Turn], content: ContentRenderer) -> list[Payload]:
    messages: list[Payload] = []
    for turn in turns:
        role = _ROLES[turn.role]
        blocks = content.render(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks or role == "user":
            messages.append({"role": role, "content": blocks} | native_fields(turn.extra))
    for message in messages:
        message["content"] = message["content"] or [_text_block(_EMPTY_TEXT)]
    return messages


def _add_text_to_documents(messages: Sequence[Payload]) -> None:
    """Some models refuse documents without a word beside them."""
    for message in messages:
        if all(block["type"] == "document" for block in message["content"]):
            message["content"].append(_text_block(_FIRST_USER_TEXT))


def _user_message(text: str) -> Payload:
    return {"role": "user", "content": [_text_block(text)]}


def _text_block(text: str) -> Payload:
    return {"type": "text", "text": text}


def _has_block(message: Payload, kinds: Sequence[str]) -> bool:
    content: Any = message["content"]
    return isinstance(content, list) and any(block["type"] in kinds for block in content)
