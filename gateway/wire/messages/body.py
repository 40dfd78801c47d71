"""Prompts of any format as messages requests. It must not know which client or account it is for.

Public format: Messages, "Create a message". What only tunes the answer and has no word here is left
out and named; what would make it another answer is refused.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import AS_USUAL, Prompt, Sampling
from gateway.core.target import SamplingStyle, Target, ThinkingStyle
from gateway.errors import CannotConvert
from gateway.wire.codec import Rendering
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload
from gateway.wire.identity import short_user
from gateway.wire.messages import marks
from gateway.wire.messages.answer import AnswerForm, render_output
from gateway.wire.messages.conversation import (
    end_with_user,
    lacks_leading_thinking,
    render_turns,
)
from gateway.wire.messages.reasoning import Thoughts, forget_clearing, is_on, render_reasoning
from gateway.wire.messages.toolset import freed, is_forced, render_choice, render_tools
from gateway.wire.toolbox import JSON_ANSWER, Toolbox, calls_tools

_NUMBERS: Final = (int, float)
_UNASKED: Final = Thoughts(None, None, 0)
"""Of a prompt that says nothing of how hard to think."""
_USUAL_TOKENS: Final = 32_000
_USUAL_OUTPUT: Final = 8192
"""Tokens that a model can put out as far as nothing is known of it."""
_STATEFUL: Final = ("conversation", "prompt", "background", "audio")
"""Fields of other formats that make it another request: what they name is kept elsewhere."""
_TIERS: Final = {"auto": "auto", "default": "standard_only"}


def render_prompt(prompt: Prompt, target: Target) -> Rendering:
    """Raises `CannotConvert` naming the field."""
    losses = Losses(Format.MESSAGES)
    own = prompt.format is Format.MESSAGES
    _refuse(prompt)
    fields = _own_fields(prompt, losses)

    tools, choice, form = _tools_and_form(prompt, target, losses)
    system, messages = render_turns(prompt, target, losses)
    if form.words:
        system.append({"type": "text", "text": form.words})
    most = _max_tokens(prompt, target, losses)
    thoughts = _UNASKED
    if prompt.reasoning is not None:
        off, unled = is_forced(choice), lacks_leading_thinking(messages)
        thoughts = render_reasoning(prompt, target, losses, most, off=off, unled=unled)
        most = thoughts.max_tokens
    thinks = is_on(thoughts.thinking, target)
    end_with_user(messages, losses, prefill=own or (target.prefill and not thinks))

    said = {
        "model": target.model,
        "max_tokens": most,
        "system": system,
        "messages": messages,
        "tools": tools,
        "tool_choice": choice,
        "thinking": thoughts.thinking,
        "output_config": _output_config(thoughts.effort, form.format),
        **_sampling(prompt.sampling, target, losses, thinks=thinks),
        "stop_sequences": [stop for stop in prompt.stop if stop.strip()],
        "stream": prompt.stream,
        **_about(prompt, losses),
    }
    # 0 tells something; what else is empty or off does not.
    body = {name: value for name, value in said.items() if value or type(value) in _NUMBERS}
    _add(body, fields, thinks=thinks)
    _mark(body, target, losses, own=own)
    return Rendering(
        body=body,
        dropped=frozenset(losses.names),
        stop=tuple([stop for stop in prompt.stop if stop and not stop.strip()]),
        json_tool=JSON_ANSWER if form.tool else None,
        fenced=form.words is not None,
    )


def _tools_and_form(
    prompt: Prompt, target: Target, losses: Losses
) -> tuple[list[Payload], Payload | None, AnswerForm]:
    """The tools, the choice among them, and the form of the answer, which may be a tool too."""
    tools: list[Payload] = []
    choice: Payload | None = None
    if prompt.tools or prompt.tool_choice is not None or calls_tools(prompt.turns):
        box = Toolbox(prompt)
        tools = render_tools(box, prompt, target, losses)
        choice = render_choice(box, prompt, tools, losses)
    form = render_output(prompt, target, has_tools=bool(tools))
    if form.tool is not None:
        tools, choice = [form.tool], {"type": "tool", "name": JSON_ANSWER}
    if target.thinking is ThinkingStyle.ALWAYS and choice and is_forced(choice):
        losses.lose("tool_choice")
        choice = freed(choice)
    return tools, choice, form


def _refuse(prompt: Prompt) -> None:
    if (prompt.sampling.choices or 1) > 1:
        raise CannotConvert("n", "the model's upstream gives one answer")
    if prompt.previous_response_id is not None:
        raise CannotConvert("previous_response_id", "the model's upstream keeps no responses")
    extra = prompt.extra
    if extra is None or extra.format is Format.MESSAGES:
        return
    for name in _STATEFUL:
        if extra.data.get(name):
            raise CannotConvert(name, "the model's upstream has nothing of the kind")
    modalities = extra.data.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise CannotConvert("modalities", "the model's upstream answers in text only")


def _own_fields(prompt: Prompt, losses: Losses) -> Payload:
    """This format's fields that the hub has no word for. What the prompt says in other words that
    have no counterpart is lost; what is empty says nothing."""
    sampling = prompt.sampling
    if sampling is not AS_USUAL:
        losses.lose_all(
            seed=sampling.seed,
            frequency_penalty=sampling.frequency_penalty or None,
            presence_penalty=sampling.presence_penalty or None,
            logprobs=sampling.top_logprobs,
        )
    if prompt.verbosity is not None and prompt.verbosity != "medium":
        losses.lose_all(verbosity=prompt.verbosity)
    if prompt.metadata:
        losses.lose("metadata")
    return dict(losses.request_fields(prompt))


def _output_config(effort: str | None, form: Payload | None) -> Payload:
    config: Payload = {} if effort is None else {"effort": effort}
    return config if form is None else config | {"format": form}


def _max_tokens(prompt: Prompt, target: Target, losses: Losses) -> int:
    """The format demands a limit; where the client names none it is what the model can."""
    if prompt.max_tokens is None:
        return min(target.max_output or _USUAL_OUTPUT, _USUAL_TOKENS)
    if target.max_output is not None and prompt.max_tokens > target.max_output:
        losses.lose("max_tokens")
        return target.max_output
    return prompt.max_tokens


def _sampling(sampling: Sampling, target: Target, losses: Losses, *, thinks: bool) -> Payload:
    """Numbers from 0 to 1; the neutral ones say nothing, and a model that thinks takes none."""
    if sampling is AS_USUAL:
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
        losses.lose("top_p")
    if said.get("temperature", 0) > 1:
        losses.lose("temperature")
        said["temperature"] = 1
    return said


def _about(prompt: Prompt, losses: Losses) -> Payload:
    """Who asks, and how the request is to be served."""
    own = prompt.format is Format.MESSAGES
    said: Payload = {}
    if prompt.user is not None:
        said["metadata"] = {"user_id": prompt.user if own else short_user(prompt.user)}
    if prompt.service_tier is not None:
        tier = prompt.service_tier if own else _TIERS.get(prompt.service_tier)
        if tier is None:
            losses.lose("service_tier")
        said["service_tier"] = tier or "auto"
    return said


def _add(body: Payload, fields: Payload, *, thinks: bool) -> None:
    """The client's own fields, and those within fields that are written anew here."""
    if not fields:
        return
    if not thinks or "thinking" not in body:
        fields.pop("thinking", None)
    for name, value in fields.items():
        written: Any = body.get(name)
        body[name] = value | written if isinstance(written, dict) else value
    if not thinks:
        forget_clearing(body)


def _mark(body: Payload, target: Target, losses: Losses, *, own: bool) -> None:
    if target.cache_marks and not own and not marks.is_marked(body):
        marks.mark_stable(body)
    if marks.trim(body):
        losses.lose("cache_marks")
