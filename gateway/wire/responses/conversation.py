"""Items of conversations: as clients and replies bring them, each with an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.errors import InvalidRequest
from gateway.wire.json_fields import Payload, as_object, optional_object
from gateway.wire.responses.input_items import parse_item

_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "web_search_call": "ws",
}
_TEXT_TYPES: Final = {"assistant": "output_text"}
_MAX_PAIRS: Final = 16
_MAX_NAME: Final = 64
_MAX_VALUE: Final = 512


def with_ids(items: Sequence[Any], suffix: str, path: str) -> list[Payload]:
    """The items as a conversation has them: with a type, an id and a list of parts. `suffix` makes
    new ids unique. Raises `InvalidRequest`."""
    shown: list[Payload] = []
    for index, item in enumerate(items):
        parse_item(item, f"{path}.{index}")
        item = as_object(item, path)
        kind = item.get("type") or "message"
        if kind == "item_reference":
            text = f"{path}.{index}: a conversation has whole items, not references"
            raise InvalidRequest(text, param=f"{path}.{index}")
        id = item.get("id") or f"{_PREFIXES.get(kind, 'item')}_{suffix}{index:x}"
        item = {"id": id, "type": kind} | {
            name: value for name, value in item.items() if name not in ("id", "type")
        }
        shown.append(_with_parts(item) if kind == "message" else item)
    return shown


def _with_parts(message: Payload) -> Payload:
    message = {"status": "completed"} | message
    if isinstance(text := message.get("content"), str):
        kind = _TEXT_TYPES.get(message["role"], "input_text")
        part: Payload = {"type": kind, "text": text}
        if kind == "output_text":
            part["annotations"] = []
        return message | {"content": [part]}
    return message


def check_metadata(body: Payload) -> Payload:
    """The metadata of a body. Raises `InvalidRequest`."""
    metadata = optional_object(body, "metadata") or {}
    if len(metadata) > _MAX_PAIRS:
        raise InvalidRequest(f"metadata: at most {_MAX_PAIRS} pairs", param="metadata")
    for name, value in metadata.items():
        if len(name) > _MAX_NAME or not isinstance(value, str) or len(value) > _MAX_VALUE:
            text = (
                f"metadata: keys have at most {_MAX_NAME} characters, values are strings of at "
                f"most {_MAX_VALUE}"
            )
            raise InvalidRequest(text, param="metadata")
    return metadata
