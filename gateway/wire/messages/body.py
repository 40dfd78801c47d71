"""Prompts of any format as messages requests. It must not know which client or account it is for.

Public format: Messages, "Create a message". What only tunes the answer and has no word here is left
out and named; what would make it another answer is refused.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import DEFAULT_SAMPLING, Prompt, Sampling
from gateway.core.target import SamplingStyle, Target, ThinkingStyle
from gateway.errors import UnsupportedField
from gateway.wire.codec import Rendering
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.identity import shorten_user
from gateway.wire.messages import marks
from gateway.wire.messages.answer import OutputConstraint, render_output
from gateway.wire.messages.conversation import (
    end_with_user,
    missing_leading_thinking,
    render_messages,
)
from gateway.wire.messages.reasoning import ThinkingParams, remove_clear_thinking, is_thinking, render_reasoning
from gateway.wire.messages.toolset import as_auto, is_forced, render_tool_choice, render_tools
from gateway.wire.toolbox import JSON_OUTPUT_TOOL, UpstreamTools, has_tool_calls

_NUMBERS: Final = (int, float)
_NO_THINKING: Final = ThinkingParams(None, None, 0)
"""Of a prompt that says nothing of how hard to think."""
_DEFAULT_MAX_TOKENS: Final = 32_000
_DEFAULT_MAX_OUTPUT: Final = 8192
"""Tokens that a model can put out as far as nothing is known of it."""
_STATEFUL_FIELDS: Final = ("conversation", "prompt", "background", "audio")
"""Fields of other formats that make it another request: what they name is kept elsewhere."""
_SERVICE_TIERS: Final = {"auto": "auto", "default": "standard_only"}


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `CannotConvert` naming the field."""
    losses = Dropped(Format.MESSAGES)
    own = prompt.format is Format.MESSAGES
    _check_supported(prompt)
    fields = _native_request_fields(prompt, losses)

    tools, choice, form = _render_tools_and_output(prompt, target, losses)
    system, messages = render_messages(prompt, target, losses)
    if form.instruction:
        system.append({"type": "text", "text": form.instruction})
    most = _render_max_tokens(prompt, target, losses)
    thoughts = _NO_THINKING
    if prompt.reasoning is not None:
        off, unled = is_forced(choice), missing_leading_thinking(messages)
        thoughts = render_reasoning(prompt, target, losses, most, tool_forced=off, missing_leading_thinking=unled)
        most = thoughts.max_tokens
    thinks = is_thinking(thoughts.thinking, target)
    end_with_user(messages, losses, prefill=own or (target.prefill and not thinks))

    said = {
        "model": target.model,
        "max_tokens": most,
        "system": system,
        "messages": messages,
        "tools": tools,
        "tool_choice": choice,
        "thinking": thoughts.thinking,
        "output_config": _render_output_config(thoughts.effort, form.format),
        **_render_sampling(prompt.sampling, target, losses, thinks=thinks),
        "stop_sequences": [stop for stop in prompt.stop if stop.strip()],
        "stream": prompt.stream,
        **_identity_fields(prompt, losses),
    }
    # 0 tells something; what else is empty or off does not.
    body = {name: value for name, value in said.items() if value or type(value) in _NUMBERS}
    _merge_native_fields(body, fields, thinks=thinks)
    _apply_cache_control(body, target, losses, same_format=own)
    return Rendering(
        body=body,
        dropped=frozenset(losses.names),
        stop=tuple([stop for stop in prompt.stop if stop and not stop.strip()]),
        json_tool=JSON_OUTPUT_TOOL if form.tool else None,
        fenced=form.instruction is not None,
    )


def _render_tools_and_output(
    prompt: Prompt, target: Target, losses: Dropped
) -> tuple[list[Payload], Payload | None, OutputConstraint]:
    """The tools, the choice among them, and the form of the answer, which may be a tool too."""
    tools: list[Payload] = []
    choice: Payload | None = None
    if prompt.tools or prompt.tool_choice is not None or has_tool_calls(prompt.turns):
        box = UpstreamTools(prompt)
        tools = render_tools(box, prompt, target, losses)
        choice = render_tool_choice(box, prompt, tools, losses)
    form = render_output(prompt, target, has_tools=bool(tools))
    if form.tool is not None:
        tools, choice = [form.tool], {"type": "tool", "name": JSON_OUTPUT_TOOL}
    if target.thinking is ThinkingStyle.ALWAYS and choice and is_forced(choice):
        losses.drop("tool_choice")
        choice = as_auto(choice)
    return tools, choice, form


def _check_supported(prompt: Prompt) -> None:
    if (prompt.sampling.choices or 1) > 1:
        raise UnsupportedField("n", "the model's upstream gives one answer")
    if prompt.previous_response_id is not None:
        raise UnsupportedField("previous_response_id", "the model's upstream keeps no responses")
    extra = prompt.extra
    if extra is None or extra.format is Format.MESSAGES:
        return
    for name in _STATEFUL_FIELDS:
        if extra.data.get(name):
            raise UnsupportedField(name, "the model's upstream has nothing of the kind")
    modalities = extra.data.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise UnsupportedField("modalities", "the model's upstream answers in text only")


def _native_request_fields(prompt: Prompt, losses: Dropped) -> Payload:
    """This format's fields that the hub has no word for. What the prompt says in other words that
    have no counterpart is lost; what is empty says nothing."""
    sampling = prompt.sampling
    if sampling is not DEFAULT_SAMPLING:
        losses.drop_set(
            seed=sampling.seed,
            frequency_penalty=sampling.frequency_penalty or None,
            presence_penalty=sampling.presence_penalty or None,
            logprobs=sampling.top_logprobs,
        )
    if prompt.verbosity is not None and prompt.verbosity != "medium":
        losses.drop_set(verbosity=prompt.verbosity)
    if prompt.metadata:
        losses.drop("metadata")
    return dict(losses.request_fields(prompt))


def _render_output_config(effort: str | None, form: Payload | None) -> Payload:
    config: Payload = {} if effort is None else {"effort": effort}
    return config if form is None else config | {"format": form}


def _render_max_tokens(prompt: Prompt, target: Target, losses: Dropped) -> int:
    """The format demands a limit; where the client names none it is what the model can."""
    if prompt.max_tokens is None:
        return min(target.max_output or _DEFAULT_MAX_OUTPUT, _DEFAULT_MAX_TOKENS)
    if target.max_output is not None and prompt.max_tokens > target.max_output:
        losses.drop("max_tokens")
        return target.max_output
    return prompt.max_tokens


def _render_sampling(sampling: Sampling, target: Target, losses: Dropped, *, thinks: bool) -> Payload:
    """Numbers from 0 to 1; the neutral ones say nothing, and a model that thinks takes none."""
    if sampling is DEFAULT_SAMPLING:
        return {}
    asked = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
    }
    said: Payload = {name: value for name, value in asked.items() if value is not None}
    if thinks or target.sampling is SamplingStyle.NEITHER:
        losses.names.update(name for name, value in said.items() if value != 1 or name == "top_k")
        return {}
    one = target.sampling is SamplingStyle.ONE and "temperature" in said
    if one and said.pop("top_p", 1) != 1:
        losses.drop("top_p")
    if said.get("temperature", 0) > 1:
        losses.drop("temperature")
        said["temperature"] = 1
    return said


def _identity_fields(prompt: Prompt, losses: Dropped) -> Payload:
    """Who asks, and how the request is to be served."""
    own = prompt.format is Format.MESSAGES
    said: Payload = {}
    if prompt.user is not None:
        said["metadata"] = {"user_id": prompt.user if own else shorten_user(prompt.user)}
    if prompt.service_tier is not None:
        tier = prompt.service_tier if own else _SERVICE_TIERS.get(prompt.service_tier)
        if tier is None:
            losses.drop("service_tier")
        said["service_tier"] = tier or "auto"
    return said


def _merge_native_fields(body: Payload, fields: Payload, *, thinks: bool) -> None:
    """The client's own fields, and those within fields that are written anew here."""
    if not fields:
        return
    if not thinks or "thinking" not in body:
        fields.pop("thinking", None)
    for name, value in fields.items():
        written: Any = body.get(name)
        body[name] = value | written if isinstance(written, dict) else value
    if not thinks:
        remove_clear_thinking(body)


def _apply_cache_control(body: Payload, target: Target, losses: Dropped, *, same_format: bool) -> None:
    if target.cache_marks and not same_format and not marks.has_breakpoints(body):
        marks.add_default_breakpoints(body)
    if marks.enforce_limit(body):
        losses.drop("cache_marks")
