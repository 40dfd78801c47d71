"""Renders a prompt of any format as the body of a chat request. It must not know replies.

Public format: Chat Completions, "Create chat completion". What the format cannot say is left out
and named, or refused where the answer would mean something else without the client noticing.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import AS_USUAL, OutputFormat, OutputKind, Prompt
from gateway.core.target import SamplingStyle, Target, ToolEffort
from gateway.errors import CannotConvert
from gateway.wire.chat.dialogue import render_messages, render_plain
from gateway.wire.chat.toolset import render_tools
from gateway.wire.codec import Rendering
from gateway.wire.crossing import Losses
from gateway.wire.effort import effort_of, nearest
from gateway.wire.fields import Payload, as_json
from gateway.wire.history import plain_dialogue
from gateway.wire.identity import conversation, short_user
from gateway.wire.json_schema import is_strict

_MOST_STOPS: Final = 4
_TIERS: Final = {"standard_only": "default"}
_ELSEWHERE: Final = ("previous_response_id", "conversation", "prompt", "background", "thread")
"""Fields of other formats that stand for words or work which only their own upstream has."""
_SCHEMA_IN_WORDS: Final = (
    "Answer with one JSON object only, no prose, no code fence. It must fit this JSON schema:\n"
)


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `CannotConvert`."""
    _check(prompt)
    losses = Losses(Format.CHAT)
    in_words = _schema_in_words(prompt.output, target)
    plain = plain_dialogue(prompt.turns)
    messages = render_plain(plain, prompt, target) if plain and in_words is None else None
    if messages is None:
        messages = render_messages(prompt, target, losses, in_words)
    uncalled = plain and not prompt.tools and prompt.tool_choice is None
    tools = {} if uncalled else render_tools(prompt, target, losses)
    stops = [text for text in prompt.stop if text]
    body: Payload = {"model": target.model, "messages": messages}
    body |= tools
    body |= _answer(prompt, target, losses)
    if prompt.output and in_words is None:
        body["response_format"] = _response_format(prompt.output, losses, own=_is_own(prompt))
    if stops:
        body["stop"] = stops[:_MOST_STOPS]
    body |= _sampling(prompt, target, losses)
    body |= _reasoning(prompt, target, losses, calling="tools" in tools)
    body |= _who(prompt, losses)
    body |= losses.request_fields(prompt)
    if prompt.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return Rendering(
        body=body,
        dropped=frozenset(losses.names),
        stop=tuple(stops[_MOST_STOPS:]),
        fenced=in_words is not None,
    )


def _is_own(prompt: Prompt) -> bool:
    return prompt.format is Format.CHAT


def _check(prompt: Prompt) -> None:
    """A translated reply is one choice and has no sound, whoever asks."""
    extra: Any = prompt.extra.data if prompt.extra else {}
    if (prompt.sampling.choices or 1) > 1:
        raise CannotConvert("n", "a translated reply has one choice")
    modalities = extra.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise CannotConvert("modalities", "a translated reply has no sound")
    if prompt.previous_response_id:
        raise CannotConvert("previous_response_id", "only its own upstream knows that response")
    if _is_own(prompt):
        return
    for field in _ELSEWHERE:
        if extra.get(field):
            raise CannotConvert(field, "only an upstream of the client's own format knows it")


def _schema_in_words(output: OutputFormat | None, target: Target) -> str | None:
    if output is None or output.kind is not OutputKind.JSON_SCHEMA or target.structured:
        return None
    return _SCHEMA_IN_WORDS + as_json(output.schema, "schema")


def _response_format(output: OutputFormat, losses: Losses, *, own: bool) -> Payload:
    """A schema of a format that does not know `strict` is enforced where it may be."""
    if output.kind is OutputKind.JSON_OBJECT:
        return {"type": "json_object"}
    described: Payload = {"name": output.name or "output"}
    if output.description is not None:
        described["description"] = output.description
    if output.schema is not None:
        described["schema"] = output.schema
    strict = output.strict
    if not own:
        strict = strict is not False and is_strict(output.schema)
        if output.strict and not strict:
            losses.lose("output.strict")
    if strict is not None:
        described["strict"] = strict
    return {"type": "json_schema", "json_schema": described}


def _answer(prompt: Prompt, target: Target, losses: Losses) -> Payload:
    """How long the answer may be, and how wordy."""
    fields: Payload = {}
    if prompt.max_tokens is not None:
        most = max(1, prompt.max_tokens)
        if target.max_output is not None:
            most = min(most, target.max_output)
        if most != prompt.max_tokens:
            losses.lose("max_tokens")
        name = "max_tokens" if target.plain_max_tokens else "max_completion_tokens"
        fields[name] = most
    if prompt.verbosity is not None:
        fields["verbosity"] = prompt.verbosity
    return fields


def _sampling(prompt: Prompt, target: Target, losses: Losses) -> Payload:
    asked = prompt.sampling
    if asked is AS_USUAL:
        return {}
    fields: Payload = {"temperature": asked.temperature, "top_p": asked.top_p}
    if target.sampling is SamplingStyle.NEITHER:
        losses.lose_all(**fields)
        fields = {}
    elif target.sampling is SamplingStyle.ONE and None not in fields.values():
        losses.lose("top_p")
        del fields["top_p"]
    if asked.top_logprobs is not None:
        losses.lose("logprobs")  # a translated reply has no place for them
    own = {
        "top_k": asked.top_k,
        "seed": asked.seed,
        "frequency_penalty": asked.frequency_penalty,
        "presence_penalty": asked.presence_penalty,
    }
    if _is_own(prompt):
        fields |= own | {"n": asked.choices}
    else:
        losses.lose_all(**own)
    return {name: value for name, value in fields.items() if value is not None}


def _reasoning(prompt: Prompt, target: Target, losses: Losses, *, calling: bool) -> Payload:
    """`calling`: tools are sent along, which some models do not take together with an effort."""
    own, reasoning = _is_own(prompt), prompt.reasoning
    if reasoning is None and not calling:
        return {}
    if own and reasoning and reasoning.extra:  # in the words of compatible servers, which it keeps
        return dict(reasoning.extra.data)
    asked = effort_of(reasoning)
    word = nearest(asked, target.efforts) if asked else None
    if asked is None and reasoning and reasoning.effort:  # a word that nobody here knows
        asked, word = reasoning.effort, reasoning.effort if own else None
    if calling and target.tool_effort is not ToolEffort.KEEP:
        word = "none" if target.tool_effort is ToolEffort.NONE else None
    if asked not in (word, None) and not (asked == "none" and word is None):
        losses.lose("reasoning_effort")
    return {} if word is None else {"reasoning_effort": word}


def _who(prompt: Prompt, losses: Losses) -> Payload:
    """Who asks and in which conversation, how urgently, and what is noted beside it."""
    own = _is_own(prompt)
    fields: Payload = {}
    if key := prompt.cache_key or conversation(prompt.user):
        fields["prompt_cache_key"] = key
    if prompt.user:
        fields["user"] = prompt.user if own else short_user(prompt.user)
    if prompt.service_tier:
        fields["service_tier"] = _TIERS.get(prompt.service_tier, prompt.service_tier)
    if own:
        if prompt.extra and "user" in prompt.extra.data:
            fields["safety_identifier"] = fields["user"]
        if prompt.metadata is not None:
            fields["metadata"] = prompt.metadata
        if prompt.store is not None:
            fields["store"] = prompt.store
    else:
        losses.lose_all(metadata=prompt.metadata)  # it has a place only beside what is stored
    return fields
