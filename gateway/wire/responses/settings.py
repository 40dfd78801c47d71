"""Settings of a request: echoed to clients of this format, and the field `text` for all."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.prompt import OutputFormat, OutputKind, Prompt
from gateway.wire.json.fields import Payload
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.render_rules import enforces_schema
from gateway.wire.prompt.tool_names import sanitize_name

_DEFAULT_SCHEMA_NAME: Final = "output"


def echo_settings(prompt: Prompt) -> Payload:
    """The fields that a client of this format has set, those in `extra` included."""
    extra: Payload = prompt.extra.data if prompt.extra is not None else {}
    is_safety_identifier = extra.get("safety_identifier") == prompt.user
    has_text_field = prompt.output is not None or prompt.verbosity is not None
    sampling, reasoning = prompt.sampling, prompt.reasoning
    settings = {
        "max_output_tokens": prompt.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_logprobs": sampling.top_logprobs,
        "text": render_text_field(prompt, Dropped(Format.RESPONSES)) if has_text_field else None,
        "reasoning": reasoning
        and (_set_fields({"effort": reasoning.effort, "summary": reasoning.summary}) or None),
        "store": prompt.store,
        "previous_response_id": prompt.previous_response_id,
        "metadata": prompt.metadata,
        "user": None if is_safety_identifier else prompt.user,
        "service_tier": prompt.service_tier,
        "prompt_cache_key": prompt.cache_key,
        "background": prompt.background or None,
        **extra,
    }
    return _set_fields(settings)


def _set_fields(fields: Payload) -> Payload:
    return {name: value for name, value in fields.items() if value is not None}


def render_text_field(prompt: Prompt, dropped: Dropped) -> Payload:
    """The field `text`, which may be empty."""
    text: Payload = {}
    output = prompt.output
    if output is not None and output.kind is OutputKind.JSON_OBJECT:
        text["format"] = {"type": "json_object"}
    elif output is not None:
        same_format = prompt.format is Format.RESPONSES
        text["format"] = _render_schema(output, dropped, same_format=same_format)
    if prompt.verbosity is not None:
        text["verbosity"] = prompt.verbosity
    return text


def _render_schema(output: OutputFormat, dropped: Dropped, *, same_format: bool) -> Payload:
    """Schemas of other formats are strict where they can be enforced."""
    name = output.name or _DEFAULT_SCHEMA_NAME
    form: Payload = {"type": "json_schema", "name": name if same_format else sanitize_name(name)}
    if output.description is not None:
        form["description"] = output.description
    form["schema"] = {"type": "object"} if output.schema is None else output.schema
    strict = output.strict if same_format else enforces_schema(output, dropped)
    return form if strict is None else form | {"strict": strict}
