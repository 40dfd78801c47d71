"""Prompts to responses requests (Responses, "Create a response").

Nothing is stored upstream, and reasoning comes back encrypted, so that the next request can go to
any account that can read it. Every call has a result, nothing is empty, and reasoning is followed
by its output (Responses, "Input"). A client of this format gets its items through as it sent them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import Part, Text
from gateway.core.prompt import OutputKind, Prompt, Reasoning, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.codec import Rendering
from gateway.wire.json.fields import Payload
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.history import (
    PlainDialogue,
    inline_names,
    pair_tool_results,
    plain_dialogue,
    split_leading_system,
)
from gateway.wire.prompt.known_turns import render_known
from gateway.wire.prompt.render_rules import (
    check_supported,
    effort_of,
    limit_max_tokens,
    nearest_effort,
    render_sampling,
    with_output_instruction,
)
from gateway.wire.prompt.server_results import read_results
from gateway.wire.prompt.tool_names import conversation_key, sanitize_name, shorten_user
from gateway.wire.responses.input_items import InputItemRenderer, empty_user_message
from gateway.wire.responses.native import (
    INCLUDE_REASONING,
    has_optional_id,
    may_reason,
    stateless_fields,
)
from gateway.wire.responses.settings import echo_settings, render_text_field
from gateway.wire.responses.tools import render_tools

MIN_OUTPUT_TOKENS: Final = 16
"""The lowest output limit that upstreams accept."""

_SEARCH: Final = "web_search"
_INCLUDE_SOURCES: Final = "web_search_call.action.sources"
_INCLUDE_LOGPROBS: Final = "message.output_text.logprobs"
_SHARED_FIELDS: Final = ("prompt_cache_options", "prompt_cache_retention", "moderation")
"""Fields of other formats with the same name and meaning."""
_SUMMARIES: Final = ("auto", "concise", "detailed")
_OMITTED: Final = "omitted"
_SERVICE_TIERS: Final = {"standard_only": "default"}
_MAX_CACHE_KEY: Final = 64
_BILLING_PREFIX: Final = "x-anthropic-billing-header:"
"""Start of a text of agents that changes with every request and has no meaning elsewhere."""
_AFTER_REASONING: Final = ("reasoning", "function_call", "custom_tool_call")


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `UnsupportedField` for what would change the meaning of the reply."""
    dropped = Dropped(Format.RESPONSES)
    check_supported(prompt, Format.RESPONSES)
    expects_json = prompt.output is not None
    prompt = with_output_instruction(prompt, target)
    body: Payload = {
        "model": target.model,
        **render_turns(prompt, target, dropped),
        **render_tools(prompt, target, dropped),
    }
    if prompt.format is Format.RESPONSES:
        settings = echo_settings(prompt) | {"previous_response_id": None, "background": None}
    else:
        settings = _render_settings(prompt, target, dropped)
    body |= {name: value for name, value in settings.items() if value is not None}
    if include := _include(prompt, body, target):
        body["include"] = include
    if prompt.format is Format.RESPONSES and prompt.store is not False:
        body |= stateless_fields(body, target)
        body["input"] = list(map(_without_optional_id, body["input"]))
    if prompt.stream:
        body["stream"] = True
    if prompt.sampling.top_logprobs is not None or _INCLUDE_LOGPROBS in prompt.include:
        dropped.drop("logprobs")  # the decoder does not pass them on
    stop = tuple([sequence for sequence in prompt.stop if sequence])
    return Rendering(body=body, dropped=frozenset(dropped.names), stop=stop, fenced=expects_json)


def _without_optional_id(item: Payload) -> Payload:
    if not has_optional_id(item):
        return item
    return {name: value for name, value in item.items() if name != "id"}


def _render_settings(prompt: Prompt, target: Target, dropped: Dropped) -> Payload:
    tier = prompt.service_tier
    has_text_field = prompt.output is not None or prompt.verbosity is not None
    return {
        "max_output_tokens": limit_max_tokens(prompt, target, dropped, MIN_OUTPUT_TOKENS),
        **render_sampling(prompt, Format.RESPONSES, target, dropped),
        "text": render_text_field(prompt, dropped) if has_text_field else None,
        "reasoning": prompt.reasoning and _render_reasoning(prompt.reasoning, target, dropped),
        "store": False,
        "metadata": prompt.metadata,
        "safety_identifier": None if prompt.user is None else shorten_user(prompt.user),
        "service_tier": _SERVICE_TIERS.get(tier, tier) if tier else None,
        "prompt_cache_key": _cache_key(prompt),
        **_shared_fields(prompt, dropped),
    }


def _render_reasoning(reasoning: Reasoning, target: Target, dropped: Dropped) -> Payload | None:
    """The effort, with a summary unless there is no reasoning or the client omits it."""
    requested = effort_of(reasoning)
    if requested is None:
        dropped.drop_set(reasoning_effort=reasoning.effort)
        return None
    effort = nearest_effort(requested, target.efforts)
    if effort is None:
        dropped.drop_set(reasoning_effort=None if requested == "none" else requested)
        return None
    if effort != requested:
        dropped.drop("reasoning_effort")
    if requested == "none" or reasoning.summary == _OMITTED:
        return {"effort": effort}
    summary = reasoning.summary if reasoning.summary in _SUMMARIES else "auto"
    return {"effort": effort, "summary": summary}


def _cache_key(prompt: Prompt) -> str | None:
    key = prompt.cache_key or conversation_key(prompt.user)
    return sanitize_name(key) if key and len(key) > _MAX_CACHE_KEY else key


def _shared_fields(prompt: Prompt, dropped: Dropped) -> Payload:
    """The fields of another format that are the same here; the others are dropped."""
    dropped.request_fields(prompt, _SHARED_FIELDS)
    if prompt.extra is None:
        return {}
    extra = prompt.extra.data
    return {name: extra[name] for name in _SHARED_FIELDS if name in extra}


def _include(prompt: Prompt, body: Payload, target: Target) -> list[str]:
    """Encrypted reasoning, and the sources of searches; a client of this format states its own."""
    if prompt.format is Format.RESPONSES:
        return list(prompt.include)
    include = [INCLUDE_REASONING] if may_reason(body, target) else []
    if any([tool["type"] == _SEARCH for tool in body.get("tools", ())]):
        include.append(_INCLUDE_SOURCES)
    return include


def render_turns(prompt: Prompt, target: Target, dropped: Dropped) -> Payload:
    """`instructions`, where there are any, and `input`, which is never empty."""
    items = InputItemRenderer(prompt, target, dropped)
    if prompt.format is Format.RESPONSES:
        instructions, rest = _split_instructions(prompt.turns)
        return _with_instructions(instructions, items.render(rest))
    plain = plain_dialogue(prompt.turns)
    if plain is not None and (rendered := _render_plain(plain, prompt)) is not None:
        return rendered
    first, rest = split_leading_system(prompt.turns)
    leading = _without_billing(inline_names(first, dropped))

    def render(turns: Sequence[Turn], uses: dict[str, int]) -> list[Payload]:
        named = _without_billing(inline_names(turns, dropped))
        paired = pair_tool_results(read_results(named, dropped), uses)
        rendered = InputItemRenderer(prompt, target, dropped).render(paired)
        return _drop_dangling_reasoning(rendered, dropped)

    inputs = render_known(prompt.turns, rest, target, dropped, render)
    if inputs and _can_be_instructions(leading, prompt, target):
        return _with_instructions(items.join_texts(leading), inputs)
    return {"input": [*items.render(leading), *inputs] or [empty_user_message()]}


def _render_plain(plain: PlainDialogue, prompt: Prompt) -> Payload | None:
    """Renders plain texts in one step; None if they have to be inspected first."""
    if prompt.output is not None:
        return None
    if any([text.startswith(_BILLING_PREFIX) for text in plain.system]):
        return None
    inputs: list[Payload] = []
    for role, text in plain.messages:
        if role is Role.USER:
            part: Payload = {"type": "input_text", "text": text}
        else:
            part = {"type": "output_text", "text": text, "annotations": []}
        inputs.append({"type": "message", "role": role.value, "content": [part]})
    return _with_instructions("\n\n".join(plain.system), inputs)


def _with_instructions(instructions: str | None, inputs: list[Payload]) -> Payload:
    if not instructions:
        return {"input": inputs}
    return {"instructions": instructions, "input": inputs}


def _split_instructions(turns: Sequence[Turn]) -> tuple[str | None, Sequence[Turn]]:
    """The turn that the parser made of `instructions`, unless there is no other, and the rest."""
    match turns:
        case [Turn(role=Role.SYSTEM, parts=(Text(text, cache=None),), extra=None), _, *_]:
            return text, turns[1:]
        case _:
            return None, turns


def _can_be_instructions(leading: Sequence[Turn], prompt: Prompt, target: Target) -> bool:
    """Tells whether the leading system turns can be `instructions`: they are only text, have no
    cache breakpoint that would be dropped, and not the word JSON, which upstreams require in the
    input for JSON output. What follows does not matter, or the beginning of the prompt would
    change."""
    parts = [part for turn in leading for part in turn.parts]
    if not all(isinstance(part, Text) for part in parts):
        return False
    if target.cache_marks and any(isinstance(part, Text) and part.cache for part in parts):
        return False
    if prompt.output is None or prompt.output.kind is not OutputKind.JSON_OBJECT:
        return True
    return not any("json" in part.text.lower() for part in parts if isinstance(part, Text))


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


def _drop_dangling_reasoning(items: Sequence[Payload], dropped: Dropped) -> list[Payload]:
    """The items without reasoning that has no output: upstreams reject it."""
    kept: list[Payload] = []
    has_output = False
    for item in reversed(items):
        kind = item["type"]
        if kind == "reasoning" and not has_output:
            dropped.drop("thinking")
            continue
        has_output = kind in _AFTER_REASONING or item.get("role") == "assistant"
        kept.append(item)
    return kept[::-1]
