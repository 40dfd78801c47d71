"""What a client of this format has asked for besides its input, as it said it; and the form of an
answer, whoever asks. It must not know what any upstream can take.
"""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import OutputFormat, OutputKind, Prompt, Reasoning
from gateway.wire.dropped import Dropped
from gateway.wire.ids import sanitize_name
from gateway.wire.json_fields import Payload
from gateway.wire.json_schema import is_strict

_DEFAULT_NAME: Final = "output"


def echo_settings(prompt: Prompt) -> Payload:
    """The fields that a client of this format has set. Those that the hub has no word for are in
    the side pocket, and so are those that hold something unknown, whole."""
    more = extra_fields(prompt.extra)
    shared_user = prompt.user is None or more.get("safety_identifier") == prompt.user
    sampling = prompt.sampling
    formed = prompt.output is not None or prompt.verbosity is not None
    settings = {
        "max_output_tokens": prompt.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_logprobs": sampling.top_logprobs,
        "text": render_text_field(prompt, Dropped(Format.RESPONSES)) if formed else None,
        "reasoning": prompt.reasoning and _echo_reasoning(prompt.reasoning),
        "store": prompt.store,
        "previous_response_id": prompt.previous_response_id,
        "metadata": prompt.metadata,
        "user": None if shared_user else prompt.user,
        "service_tier": prompt.service_tier,
        "prompt_cache_key": prompt.cache_key,
        **more,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _echo_reasoning(reasoning: Reasoning) -> Payload | None:
    said = {"effort": reasoning.effort, "summary": reasoning.summary}
    return {name: value for name, value in said.items() if value is not None} or None


def render_text_field(prompt: Prompt, losses: Dropped) -> Payload:
    """The field `text`, maybe empty."""
    text: Payload = {}
    output = prompt.output
    if output is not None and output.kind is OutputKind.JSON_OBJECT:
        text["format"] = {"type": "json_object"}
    elif output is not None:
        text["format"] = _render_schema(
            output, losses, same_format=prompt.format is Format.RESPONSES
        )
    if prompt.verbosity is not None:
        text["verbosity"] = prompt.verbosity
    return text


def _render_schema(output: OutputFormat, losses: Dropped, *, same_format: bool) -> Payload:
    """Only some schemas can be enforced here, and only those are said to be."""
    name = output.name or _DEFAULT_NAME
    form: Payload = {"type": "json_schema", "name": name if same_format else sanitize_name(name)}
    if output.description is not None:
        form["description"] = output.description
    form["schema"] = {"type": "object"} if output.schema is None else output.schema
    strict = output.strict
    if not same_format:
        strict = strict is not False and is_strict(output.schema)
        if output.strict and not strict:
            losses.drop("output.strict")
    return form if strict is None else form | {"strict": strict}


def extra_fields(extra: ProviderData | None) -> Payload:
    """The fields in a side pocket, of whatever format."""
    return extra.data if extra is not None and isinstance(extra.data, dict) else {}
