"""Renders a prompt of any format as the body of a chat request. It must not know replies.

Public format: Chat Completions, "Create chat completion". What the format cannot say is left out
and named, or refused where the answer would mean something else without the client noticing.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import DEFAULT_SAMPLING, OutputFormat, OutputKind, Prompt
from gateway.core.target import SamplingStyle, Target, ToolEffort
from gateway.errors import UnsupportedField
from gateway.wire.chat.dialogue import render_messages, render_plain_dialogue
from gateway.wire.chat.toolset import render_tools
from gateway.wire.codec import Rendering
from gateway.wire.crossing import Dropped
from gateway.wire.effort import effort_of, nearest_effort
from gateway.wire.fields import Payload, as_json
from gateway.wire.history import plain_dialogue
from gateway.wire.identity import conversation_key, shorten_user
from gateway.wire.json_schema import is_strict

_MAX_STOPS: Final = 4
_SERVICE_TIERS: Final = {"standard_only": "default"}
_STATEFUL_FIELDS: Final = ("previous_response_id", "conversation", "prompt", "background", "thread")
"""Fields of other formats that stand for words or work which only their own upstream has."""
_SCHEMA_INSTRUCTION: Final = (
    "Answer with one JSON object only, no prose, no code fence. It must fit this JSON schema:\n"
)


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `CannotConvert`."""
    _check_supported(prompt)
    losses = Dropped(Format.CHAT)
    in_words = _schema_instruction(prompt.output, target)
    plain = plain_dialogue(prompt.turns)
    messages = render_plain_dialogue(plain, prompt, target) if plain and in_words is None else None
    if messages is None:
        messages = render_messages(prompt, target, losses, in_words)
    uncalled = plain and not prompt.tools and prompt.tool_choice is None
    tools = {} if uncalled else render_tools(prompt, target, losses)
    stops = [text for text in prompt.stop if text]
    body: Payload = {"model": target.model, "messages": messages}
    body |= tools
    body |= _render_output_limits(prompt, target, losses)
    if prompt.output and in_words is None:
        body["response_format"] = _render_response_format(prompt.output, losses, same_format=_is_same_format(prompt))
    if stops:
        body["stop"] = stops[:_MAX_STOPS]
    body |= _render_sampling(prompt, target, losses)
    body |= _render_effort(prompt, target, losses, has_tools="tools" in tools)
    body |= _identity_fields(prompt, losses)
    body |= losses.request_fields(prompt)
    if prompt.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return Rendering(
        body=body,
        dropped=frozenset(losses.names),
        stop=tuple(stops[_MAX_STOPS:]),
        fenced=in_words is not None,
    )


def _is_same_format(prompt: Prompt) -> bool:
    return prompt.format is Format.CHAT


def _check_supported(prompt: Prompt) -> None:
    """A translated reply is one choice and has no sound, whoever asks."""
    extra: Any = prompt.extra.data if prompt.extra else {}
    if (prompt.sampling.choices or 1) > 1:
        raise UnsupportedField("n", "a translated reply has one choice")
    modalities = extra.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise UnsupportedField("modalities", "a translated reply has no sound")
    if prompt.previous_response_id:
        raise UnsupportedField("previous_response_id", "only its own upstream knows that response")
    if _is_same_format(prompt):
        return
    for field in _STATEFUL_FIELDS:
        if extra.get(field):
            raise UnsupportedField(field, "only an upstream of the client's own format knows it")


def _schema_instruction(output: OutputFormat | None, target: Target) -> str | None:
    if output is None or output.kind is not OutputKind.JSON_SCHEMA or target.structured:
        return None
    return _SCHEMA_INSTRUCTION + as_json(output.schema, "schema")


def _render_response_format(output: OutputFormat, losses: Dropped, *, same_format: bool) -> Payload:
    """A schema of a format that does not know `strict` is enforced where it may be."""
    if output.kind is OutputKind.JSON_OBJECT:
        return {"type": "json_object"}
    described: Payload = {"name": output.name or "output"}
    if output.description is not None:
        described["description"] = output.description
    if output.schema is not None:
        described["schema"] = output.schema
    strict = output.strict
    if not same_format:
        strict = strict is not False and is_strict(output.schema)
        if output.strict and not strict:
            losses.drop("output.strict")
    if strict is not None:
        described["strict"] = strict
    return {"type": "json_schema", "json_schema": described}


def _render_output_limits(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    """How long the answer may be, and how wordy."""
    fields: Payload = {}
    if prompt.max_tokens is not None:
        most = max(1, prompt.max_tokens)
        if target.max_output is not None:
            most = min(most, target.max_output)
        if most != prompt.max_tokens:
            losses.drop("max_tokens")
        name = "max_tokens" if target.plain_max_tokens else "max_completion_tokens"
        fields[name] = most
    if prompt.verbosity is not None:
        fields["verbosity"] = prompt.verbosity
    return fields


def _render_sampling(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    asked = prompt.sampling
    if asked is DEFAULT_SAMPLING:
        return {}
    fields: Payload = {"temperature": asked.temperature, "top_p": asked.top_p}
    if target.sampling is SamplingStyle.NEITHER:
        losses.drop_set(**fields)
        fields = {}
    elif target.sampling is SamplingStyle.ONE and None not in fields.values():
        losses.drop("top_p")
        del fields["top_p"]
    if asked.top_logprobs is not None:
        losses.drop("logprobs")  # a translated reply has no place for them
    own = {
        "top_k": asked.top_k,
        "seed": asked.seed,
        "frequency_penalty": asked.frequency_penalty,
        "presence_penalty": asked.presence_penalty,
    }
    if _is_same_format(prompt):
        fields |= own | {"n": asked.choices}
    else:
        losses.drop_set(**own)
    return {name: value for name, value in fields.items() if value is not None}


def _render_effort(prompt: Prompt, target: Target, losses: Dropped, *, has_tools: bool) -> Payload:
    """`calling`: tools are sent along, which some models do not take together with an effort."""
    own, reasoning = _is_same_format(prompt), prompt.reasoning
    if reasoning is None and not has_tools:
        return {}
    if own and reasoning and reasoning.extra:  # in the words of compatible servers, which it keeps
        return dict(reasoning.extra.data)
    asked = effort_of(reasoning)
    word = nearest_effort(asked, target.efforts) if asked else None
    if asked is None and reasoning and reasoning.effort:  # a word that nobody here knows
        asked, word = reasoning.effort, reasoning.effort if own else None
    if has_tools and target.tool_effort is not ToolEffort.KEEP:
        word = "none" if target.tool_effort is ToolEffort.NONE else None
    if asked not in (word, None) and not (asked == "none" and word is None):
        losses.drop("reasoning_effort")
    return {} if word is None else {"reasoning_effort": word}


def _identity_fields(prompt: Prompt, losses: Dropped) -> Payload:
    """Who asks and in which conversation, how urgently, and what is noted beside it."""
    own = _is_same_format(prompt)
    fields: Payload = {}
    if key := prompt.cache_key or conversation_key(prompt.user):
        fields["prompt_cache_key"] = key
    if prompt.user:
        fields["user"] = prompt.user if own else shorten_user(prompt.user)
    if prompt.service_tier:
        fields["service_tier"] = _SERVICE_TIERS.get(prompt.service_tier, prompt.service_tier)
    if own:
        if prompt.extra and "user" in prompt.extra.data:
            fields["safety_identifier"] = fields["user"]
        if prompt.metadata is not None:
            fields["metadata"] = prompt.metadata
        if prompt.store is not None:
            fields["store"] = prompt.store
    else:
        losses.drop_set(metadata=prompt.metadata)  # it has a place only beside what is stored
    return fields
