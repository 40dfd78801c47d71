"""A prompt of any format as a responses request. It must not know how the reply will look.

Public format: Responses, "Create a response". Nothing is stored upstream and reasoning comes back
encrypted, so that every turn can go to any account that can read it.

A prompt's turns as `instructions` and `input`. It must not know tools' definitions or options.

Every call is answered, nothing is empty, and reasoning stands before what it led to (Responses,
"Input"). A client of this format has its items back as it sent them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Part, Text
from gateway.core.prompt import DEFAULT_SAMPLING, OutputKind, Prompt, Reasoning, Role, Turn
from gateway.core.target import SamplingStyle, Target
from gateway.core.value import replace
from gateway.errors import UnsupportedField
from gateway.wire.codec import Rendering
from gateway.wire.dropped import Dropped
from gateway.wire.effort import effort_of, nearest_effort
from gateway.wire.history import (
    PlainDialogue,
    inline_names,
    pair_tool_results,
    plain_dialogue,
    split_leading_system,
)
from gateway.wire.ids import conversation_key, sanitize_name, shorten_user
from gateway.wire.json_fields import Payload, as_json
from gateway.wire.responses.input_items import InputItemRenderer, empty_user_message
from gateway.wire.responses.settings import echo_settings, extra_fields, render_text_field
from gateway.wire.responses.tools import render_tools

MIN_OUTPUT_TOKENS: Final = 16
"""Tokens of output that upstreams let a request be limited to, at the least."""

_SEARCH: Final = "web_search"
_INCLUDE_REASONING: Final = "reasoning.encrypted_content"
_INCLUDE_SOURCES: Final = "web_search_call.action.sources"
_INCLUDE_LOGPROBS: Final = "message.output_text.logprobs"
_SHARED_FIELDS: Final = ("prompt_cache_options", "prompt_cache_retention", "moderation")
"""Fields that mean the same wherever they have these names."""
_SUMMARIES: Final = ("auto", "concise", "detailed")
_OMITTED: Final = "omitted"
_SERVICE_TIERS: Final = {"standard_only": "default"}
_MAX_TEMPERATURE: Final = 2.0
_MAX_CACHE_KEY: Final = 64


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `CannotConvert` for what would change the answer's meaning."""
    losses = Dropped(Format.RESPONSES)
    own = prompt.format is Format.RESPONSES
    _check_supported(prompt)
    body: Payload = {
        "model": target.model,
        **render_turns(prompt, target, losses),
        **render_tools(prompt, target, losses),
    }
    settings = echo_settings(prompt) if own else _render_settings(prompt, target, losses)
    body |= {name: value for name, value in settings.items() if value is not None}
    if include := _include(prompt, body):
        body["include"] = include
    if prompt.stream:
        body["stream"] = True
    if _wants_logprobs(prompt):
        losses.drop("logprobs")
    return Rendering(body=body, dropped=frozenset(losses.names), stop=_stop_sequences(prompt))


def _check_supported(prompt: Prompt) -> None:
    """The fields are named as the formats that have them call them."""
    if (prompt.sampling.choices or 1) > 1:
        raise UnsupportedField("n", "the model's upstream gives one answer only")
    if prompt.extra is None:
        return
    more = extra_fields(prompt.extra)
    if more.get("audio") or "audio" in (more.get("modalities") or ()):
        raise UnsupportedField("modalities", "the model's upstream answers in text only")
    if more.get("background"):
        raise UnsupportedField("background", "a translated reply cannot be fetched later")


def _render_settings(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    tier = prompt.service_tier
    formed = prompt.output is not None or prompt.verbosity is not None
    return {
        "max_output_tokens": _max_tokens(prompt, target, losses),
        **_render_sampling(prompt, target, losses),
        "text": (render_text_field(prompt, losses) or None) if formed else None,
        "reasoning": prompt.reasoning
        and (_render_reasoning(prompt.reasoning, target, losses) or None),
        "store": False,
        "metadata": prompt.metadata,
        "safety_identifier": None if prompt.user is None else shorten_user(prompt.user),
        "service_tier": _SERVICE_TIERS.get(tier, tier) if tier else None,
        "prompt_cache_key": _cache_key(prompt),
        **(_shared_fields(prompt, losses) if prompt.extra is not None else {}),
    }


def _max_tokens(prompt: Prompt, target: Target, losses: Dropped) -> int | None:
    asked = prompt.max_tokens
    if asked is None:
        return None
    most = max(MIN_OUTPUT_TOKENS, asked if target.max_output is None else target.max_output)
    given = min(max(asked, MIN_OUTPUT_TOKENS), most)
    if given != asked:
        losses.drop("max_tokens")
    return given


def _render_sampling(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    asked = prompt.sampling
    if asked is DEFAULT_SAMPLING:
        return {}
    losses.drop_set(
        top_k=asked.top_k,
        seed=asked.seed,
        frequency_penalty=asked.frequency_penalty or None,
        presence_penalty=asked.presence_penalty or None,
    )
    temperature, top_p = asked.temperature, asked.top_p
    if target.sampling is SamplingStyle.NEITHER:
        losses.drop_set(temperature=temperature, top_p=top_p)
        return {}
    if target.sampling is SamplingStyle.ONE and temperature is not None and top_p is not None:
        losses.drop("top_p")
        top_p = None
    if temperature is not None and temperature > _MAX_TEMPERATURE:
        losses.drop("temperature")
        temperature = _MAX_TEMPERATURE
    return {"temperature": temperature, "top_p": top_p}


def _render_reasoning(reasoning: Reasoning, target: Target, losses: Dropped) -> Payload:
    """Where thinking was asked for, so is what there is to read of it, unless it is unwanted."""
    asked = effort_of(reasoning)
    if asked is None:
        losses.drop_set(reasoning_effort=reasoning.effort)
        return {}
    effort = nearest_effort(asked, target.efforts)
    if effort is None:
        losses.drop_set(reasoning_effort=None if asked == "none" else asked)
        return {}
    if effort != asked:
        losses.drop("reasoning_effort")
    if asked == "none" or reasoning.summary == _OMITTED:
        return {"effort": effort}
    summary = reasoning.summary if reasoning.summary in _SUMMARIES else "auto"
    return {"effort": effort, "summary": summary}


def _cache_key(prompt: Prompt) -> str | None:
    key = prompt.cache_key or conversation_key(prompt.user)
    return sanitize_name(key) if key and len(key) > _MAX_CACHE_KEY else key


def _shared_fields(prompt: Prompt, losses: Dropped) -> Payload:
    """The fields of another format that are the same here; the others are named."""
    losses.request_fields(prompt, _SHARED_FIELDS)
    more = extra_fields(prompt.extra)
    return {name: more[name] for name in _SHARED_FIELDS if name in more}


def _include(prompt: Prompt, body: Mapping[str, Any]) -> list[str]:
    """What takes a conversation on, and what there is to show of a search. A client of this format
    says itself what it wants to see."""
    if prompt.format is Format.RESPONSES:
        return list(prompt.include)
    searches = any([tool["type"] == _SEARCH for tool in body.get("tools", ())])
    return [_INCLUDE_REASONING, _INCLUDE_SOURCES] if searches else [_INCLUDE_REASONING]


def _wants_logprobs(prompt: Prompt) -> bool:
    """Nobody can be given them: the hub has no word for them."""
    return prompt.sampling.top_logprobs is not None or _INCLUDE_LOGPROBS in prompt.include


def _stop_sequences(prompt: Prompt) -> tuple[str, ...]:
    return tuple([stop for stop in prompt.stop if stop])


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
    if prompt.output is not None or any(
        [text.startswith(_BILLING_PREFIX) for text in plain.system]
    ):
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
