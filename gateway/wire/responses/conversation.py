"""Items of conversations: as clients and replies bring them, each with an id."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final

from gateway.errors import InvalidRequest
from gateway.wire.json.fields import Payload, as_object, optional_object
from gateway.wire.responses.client_tools import called_tool, is_call_output
from gateway.wire.responses.ids import generated_id
from gateway.wire.responses.input_items import REFERENCE, item_kind, parse_item

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
_MAX_ID: Final = 1024
_MAX_PAIRS: Final = 16
_MAX_NAME: Final = 64
_MAX_VALUE: Final = 512


def with_ids(
    items: Sequence[Any], suffix: str, path: str, known: Set[str] = frozenset()
) -> list[Payload]:
    """The items as a conversation has them: with a type, an id and a list of parts. Pages begin
    after an id: those that are `known` there, that another item has, or that are very long are
    replaced. `suffix` makes new ones unique. Raises `InvalidRequest`."""
    shown: list[Payload] = []
    used = set(known)
    for index, item in enumerate(items):
        parse_item(item, f"{path}.{index}")
        item = as_object(item, path)
        kind = item_kind(item)
        if kind == REFERENCE:
            text = f"{path}.{index}: a conversation has whole items, not references"
            raise InvalidRequest(text, param=f"{path}.{index}")
        id = item.get("id")
        if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID or id in used:
            if isinstance(id, str) and (called_tool(item) or is_call_output(item)):
                item = {"call_id": id} | item  # some have only one id, which links them
            id = generated_id(_PREFIXES.get(kind, "item"), f"{suffix}{index:x}")
        used.add(id)
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
