"""A prompt's turns as `instructions` and `input`. It must not know tools' definitions or options.

Every call is answered, nothing is empty, and reasoning stands before what it led to (Responses,
"Input"). A client of this format has its items back as it sent them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Part,
    Text,
)
from gateway.core.prompt import OutputKind, Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload, as_json
from gateway.wire.history import (
    PlainDialogue,
    inline_names,
    split_leading_system,
    pair_tool_results,
    plain_dialogue,
)
from gateway.wire.responses.input_items import InputItemRenderer, empty_user_message

_BILLING_PREFIX: Final = "x-anthropic-billing-header:"
"""How a text begins that changes with every request of an agent and means nothing elsewhere."""
_AFTER_REASONING: Final = ("reasoning", "function_call", "custom_tool_call")


def render_turns(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    """`instructions`, where there are any, and `input`, which is never empty."""
    items = InputItemRenderer(prompt, target, losses)
    if prompt.format is Format.RESPONSES:
        instructions, rest = _split_instructions(prompt.turns)
        return _with_instructions(instructions, items.render(rest))
    plain = plain_dialogue(prompt.turns)
    if plain is not None and (rendered := _render_plain(plain, prompt)) is not None:
        return rendered
    leading, rest = split_leading_system(_without_billing(inline_names(prompt.turns, losses)))
    inputs = _drop_dangling_reasoning(items.render(pair_tool_results(rest)), losses)
    if inputs and _can_be_instructions(leading, prompt, target, inputs):
        return _with_instructions(items.join_texts(leading), inputs)
    return {"input": [*items.render(leading), *inputs] or [empty_user_message()]}


def _render_plain(plain: PlainDialogue, prompt: Prompt) -> Payload | None:
    """The same in one step, where there is nothing to put in order; None where the texts have to be
    looked at first."""
    if prompt.output is not None or any([text.startswith(_BILLING_PREFIX) for text in plain.system]):
        return None
    inputs: list[Payload] = []
    for speaker, text in plain.messages:
        if speaker is Role.USER:
            said: Payload = {"type": "input_text", "text": text}
        else:
            said = {"type": "output_text", "text": text, "annotations": []}
        inputs.append({"type": "message", "role": speaker.value, "content": [said]})
    return _with_instructions("\n\n".join(plain.system), inputs)


def _with_instructions(instructions: str | None, inputs: list[Payload]) -> Payload:
    if not instructions:
        return {"input": inputs}
    return {"instructions": instructions, "input": inputs}


def _split_instructions(turns: Sequence[Turn]) -> tuple[str | None, Sequence[Turn]]:
    """What the parser has made a turn of, unless it is all there is, and the other turns."""
    match turns:
        case [Turn(role=Role.SYSTEM, parts=(Text(text, cache=None),), extra=None), _, *_]:
            return text, turns[1:]
        case _:
            return None, turns


def _can_be_instructions(
    leading: Sequence[Turn], prompt: Prompt, target: Target, inputs: Sequence[Payload]
) -> bool:
    """Whether the leading system text may stand apart from the input: it is text alone, has no
    marks that would be lost, and is not the one place that speaks of JSON where the upstream looks
    for that word in the input."""
    parts = [part for turn in leading for part in turn.parts]
    if not all(isinstance(part, Text) for part in parts):
        return False
    if target.cache_marks and any(isinstance(part, Text) and part.cache for part in parts):
        return False
    if prompt.output is None or prompt.output.kind is not OutputKind.JSON_OBJECT:
        return True
    return "json" in as_json(inputs, "input").lower()


def _without_billing(turns: Iterable[Turn]) -> list[Turn]:
    kept: list[Turn] = []
    for turn in turns:
        parts = tuple(part for part in turn.parts if not _is_billing(part))
        if len(parts) == len(turn.parts):
            kept.append(turn)
        elif parts:
            kept.append(replace(turn, parts=parts))
    return kept


def _is_billing(part: Part) -> bool:
    return isinstance(part, Text) and part.text.startswith(_BILLING_PREFIX)


def _drop_dangling_reasoning(items: Sequence[Payload], losses: Dropped) -> list[Payload]:
    """The items without reasoning that led to nothing: upstreams refuse it."""
    kept: list[Payload] = []
    led = False
    for item in reversed(items):
        kind = item["type"]
        if kind == "reasoning" and not led:
            losses.drop("thinking")
            continue
        led = kind in _AFTER_REASONING or item.get("role") == "assistant"
        kept.append(item)
    return kept[::-1]
