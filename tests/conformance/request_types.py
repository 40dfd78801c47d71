"""Whether a body is one that a format's own stock library could have sent, field by field.

The libraries describe requests as TypedDicts. Read as they stand they let unknown keys pass and
look into no list, so their schemas are made strict first. Independent of what a field means.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses import ResponseInputAudioParam
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from gateway.core.formats import Format

_REQUESTS: Final = {
    (Format.CHAT, False): CompletionCreateParamsNonStreaming,
    (Format.CHAT, True): CompletionCreateParamsStreaming,
    (Format.MESSAGES, False): MessageCreateParamsNonStreaming,
    (Format.MESSAGES, True): MessageCreateParamsStreaming,
    (Format.RESPONSES, False): ResponseCreateParamsNonStreaming,
    (Format.RESPONSES, True): ResponseCreateParamsStreaming,
}
_TAKEN_WITHOUT: Final = {
    "ResponseOutputMessageParam": {"id", "status"},
    "ResponseOutputTextParam": {"annotations"},
    "ResponseReasoningItemParam": {"id"},
    "ResponseFunctionWebSearchParam": {"id"},
}
"""What the types want because replies have it, while the endpoint takes histories without it."""
_ALSO_TAKEN: Final = {
    "ResponseCustomToolCallParam": {"status": {"type": "str"}},
}
"""What replies have and the endpoint takes back, which the types have forgotten."""
_HEADERS: Final = {"user_profile_id", "workspace_id"}
"""What the library takes as an argument and sends as a header."""
_OLD_VERSION: Final = {
    "temperature": {"type": "float", "ge": 0, "le": 1},
    "top_p": {"type": "float", "ge": 0, "le": 1},
    "top_k": {"type": "int", "ge": 0},
}
"""Fields of version 2023-06-01 of messages that the library's newer one no longer has."""
_EXTENSIONS: Final = ("reasoning_content", "reasoning_details")
"""What servers of open models say, and take back, beyond chat's own fields."""
_FILE_INPUT: Final = "ResponseInputFileParam"
"""Where responses takes this, servers of open models take audio too. The library has a type for it
and does not say where it belongs."""

_MOST_SHOWN: Final = 3

Schema = dict[str, Any]


def violations(
    format: Format, body: bytes, *, streamed: bool, old: bool, extended: bool
) -> list[str]:
    """What is wrong with a JSON body. `old`: messages in its version 2023-06-01; `extended`: chat
    and responses as servers of open models speak them."""
    try:
        _validator(format, streamed, old, extended).validate_json(body, strict=True)
    except ValidationError as error:
        details = sorted(
            error.errors(include_url=False), key=lambda detail: detail["type"] == "string_type"
        )
        return [_described(detail) for detail in (_relevant(details) or details)[:_MOST_SHOWN]]
    return []


def _relevant(details: list[Any]) -> list[Any]:
    """Without those of alternatives that the body by its own type or role did not want to be."""
    excluded = [
        detail["loc"][:-1]
        for detail in details
        if detail["type"] == "literal_error" and detail["loc"][-1] in ("type", "role")
    ]
    return [
        detail
        for detail in details
        if not any(detail["loc"][: len(other)] == other for other in excluded)
    ]


def _described(detail: Any) -> str:
    place = ".".join(str(step) for step in detail["loc"] if not _names_alternative(step))
    return f"{place}: {detail['msg']} (not {detail['input']!r:.200})"


def _names_alternative(step: str | int) -> bool:
    return isinstance(step, str) and ("[" in step or step[0].isupper() or step in ("str", "list"))


@cache
def _validator(format: Format, streamed: bool, old: bool, extended: bool) -> SchemaValidator:
    schema = TypeAdapter(_REQUESTS[format, streamed]).core_schema
    models = {
        definition["ref"]
        for definition in schema.get("definitions", ())
        if definition["type"] == "model"
    }

    def refine(node: Schema) -> Schema:
        name = str(node.get("cls_name") or node["cls"].__name__)
        fields = {
            key: field | {"required": field.get("required") and key not in _without(name)}
            for key, field in node["fields"].items()
            if key not in _HEADERS
        }
        fields |= {key: _optional(value) for key, value in _ALSO_TAKEN.get(name, {}).items()}
        if old and name.startswith("MessageCreateParams"):
            fields |= {key: _optional(value) for key, value in _OLD_VERSION.items()}
        if extended and name == "ChatCompletionAssistantMessageParam":
            fields |= {key: _optional({"type": "any"}) for key in _EXTENSIONS}
        return node | {"fields": fields, "extra_behavior": "forbid"}

    if extended:
        schema = _with_audio(schema)
    return SchemaValidator(_strict(schema, models, refine))


def _with_audio(schema: Any) -> Schema:
    """Wherever a file is taken."""
    audio = TypeAdapter(ResponseInputAudioParam).core_schema
    definitions = [
        {"type": "union", "choices": [model | {"ref": None}, audio], "ref": model["ref"]}
        if f".{_FILE_INPUT}:" in model["ref"]
        else model
        for model in schema.get("definitions", ())
    ]
    return schema | ({"definitions": definitions} if definitions else {})


def _without(name: str) -> set[str]:
    return _TAKEN_WITHOUT.get(name, set())


def _optional(schema: Schema) -> Schema:
    return {"type": "typed-dict-field", "schema": schema, "required": False}


def _strict(node: Any, models: set[str], refine: Callable[[Schema], Schema]) -> Any:
    """The schema with `refine` done to every object; with lists that are read at once, where
    `Iterable` would be read by nobody; and without the classes of replies among its alternatives,
    for those take any key."""
    if isinstance(node, list):
        return [_strict(item, models, refine) for item in node]
    if not isinstance(node, dict):
        return node
    match node.get("type"):
        case "model":
            return {"type": "any", "ref": node.get("ref")}
        case "json-or-python":
            return _strict(node["json_schema"], models, refine)
        case "generator":
            node = node | {"type": "list"}
        case "union":
            choices = [choice for choice in node["choices"] if not _is_model(choice, models)]
            node = node | {"choices": choices}
        case "typed-dict":
            node = refine(node)
    return {key: _strict(value, models, refine) for key, value in node.items()}


def _is_model(choice: Schema, models: set[str]) -> bool:
    if choice["type"] == "union":
        return all(_is_model(inner, models) for inner in choice["choices"])
    return choice["type"] == "model" or choice.get("schema_ref") in models
