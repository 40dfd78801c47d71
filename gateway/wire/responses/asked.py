"""What a client of this format has asked for besides its input, as it said it; and the form of an
answer, whoever asks. It must not know what any upstream can take.
"""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque
from gateway.core.prompt import OutputFormat, OutputKind, Prompt, Reasoning
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload
from gateway.wire.identity import legal
from gateway.wire.json_schema import is_strict

_ANSWER: Final = "output"


def own_settings(prompt: Prompt) -> Payload:
    """The fields that a client of this format has set. Those that the hub has no word for are in
    the side pocket, and so are those that hold something unknown, whole."""
    more = fields_of(prompt.extra)
    shared_user = prompt.user is None or more.get("safety_identifier") == prompt.user
    sampling = prompt.sampling
    formed = prompt.output is not None or prompt.verbosity is not None
    settings = {
        "max_output_tokens": prompt.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_logprobs": sampling.top_logprobs,
        "text": render_answer(prompt, Losses(Format.RESPONSES)) if formed else None,
        "reasoning": prompt.reasoning and _own_reasoning(prompt.reasoning),
        "store": prompt.store,
        "previous_response_id": prompt.previous_response_id,
        "metadata": prompt.metadata,
        "user": None if shared_user else prompt.user,
        "service_tier": prompt.service_tier,
        "prompt_cache_key": prompt.cache_key,
        **more,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _own_reasoning(reasoning: Reasoning) -> Payload | None:
    said = {"effort": reasoning.effort, "summary": reasoning.summary}
    return {name: value for name, value in said.items() if value is not None} or None


def render_answer(prompt: Prompt, losses: Losses) -> Payload:
    """The field `text`, maybe empty."""
    text: Payload = {}
    output = prompt.output
    if output is not None and output.kind is OutputKind.JSON_OBJECT:
        text["format"] = {"type": "json_object"}
    elif output is not None:
        text["format"] = _schema(output, losses, own=prompt.format is Format.RESPONSES)
    if prompt.verbosity is not None:
        text["verbosity"] = prompt.verbosity
    return text


def _schema(output: OutputFormat, losses: Losses, *, own: bool) -> Payload:
    """Only some schemas can be enforced here, and only those are said to be."""
    name = output.name or _ANSWER
    form: Payload = {"type": "json_schema", "name": name if own else legal(name)}
    if output.description is not None:
        form["description"] = output.description
    form["schema"] = {"type": "object"} if output.schema is None else output.schema
    strict = output.strict
    if not own:
        strict = strict is not False and is_strict(output.schema)
        if output.strict and not strict:
            losses.lose("output.strict")
    return form if strict is None else form | {"strict": strict}


def fields_of(extra: Opaque | None) -> Payload:
    """The fields in a side pocket, of whatever format."""
    return extra.data if extra is not None and isinstance(extra.data, dict) else {}
