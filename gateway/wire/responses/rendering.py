"""A prompt of any format as a responses request. It must not know how the reply will look.

Public format: Responses, "Create a response". Nothing is stored upstream and reasoning comes back
encrypted, so that every turn can go to any account that can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import DEFAULT_SAMPLING, Prompt, Reasoning
from gateway.core.target import SamplingStyle, Target
from gateway.errors import UnsupportedField
from gateway.wire.codec import Rendering
from gateway.wire.crossing import Dropped
from gateway.wire.effort import effort_of, nearest_effort
from gateway.wire.fields import Payload
from gateway.wire.identity import conversation_key, sanitize_name, shorten_user
from gateway.wire.responses.asked import extra_fields, echo_settings, render_text_field
from gateway.wire.responses.conversation import render_turns
from gateway.wire.responses.toolset import render_tools

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
        "reasoning": prompt.reasoning and (_render_reasoning(prompt.reasoning, target, losses) or None),
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
