"""Tools that messages models know by their type and that the client runs.

Their descriptions and schemas, with which other formats can offer them, are the public ones
(Messages, "Bash tool", "Text editor tool", "Memory tool", "Computer use tool").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gateway.wire.json.fields import Payload

_DATED_TYPE: Final = re.compile(r"(bash|text_editor|memory|computer)_\d{8}\Z")
FIELDS: Final = {"type", "name", "cache_control", "display_width_px", "display_height_px"}
"""The fields of a typed tool that other formats get."""
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}


class ClientTool(NamedTuple):
    description: str
    schema: Mapping[str, Any]


def find_client_tool(kind: str, tool: Payload) -> ClientTool | None:
    """Description and schema of a typed tool; None for other types."""
    if not (match := _DATED_TYPE.match(kind)):
        return None
    client_tool = _TOOLS[match[1]]
    width, height = tool.get("display_width_px"), tool.get("display_height_px")
    if isinstance(width, int) and isinstance(height, int):
        text = f"{client_tool.description} The screen has {width} x {height} pixels."
        return client_tool._replace(description=text)
    return client_tool


def _schema(*required: str, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _one_of(*values: str) -> Mapping[str, Any]:
    return {"type": "string", "enum": list(values)}


def _numbers(count: int, description: str) -> Mapping[str, Any]:
    array = {"type": "array", "items": _NUMBER, "minItems": count, "maxItems": count}
    return array | {"description": description}


_FILES: Final = {
    "path": _TEXT,
    "file_text": _TEXT | {"description": "The whole content, for create."},
    "old_str": _TEXT | {"description": "What str_replace takes out: it must occur exactly once."},
    "new_str": _TEXT | {"description": "What str_replace puts in."},
    "insert_line": _NUMBER | {"description": "insert: after this line, 0 for the beginning."},
    "insert_text": _TEXT | {"description": "What insert puts in."},
    "view_range": _numbers(2, "view: the first and the last line, from 1; -1 for the end."),
}
_POINT: Final = "Pixels from the left and from the top."

_TOOLS: Final = {
    "bash": ClientTool(
        "Runs a command in a bash shell that stays open from one call to the next.",
        _schema(
            command=_TEXT,
            restart={"type": "boolean", "description": "True to start a new shell instead."},
        ),
    ),
    "text_editor": ClientTool(
        "Views, creates and edits text files.",
        _schema(
            *("command", "path"),
            command=_one_of("view", "create", "str_replace", "insert"),
            **_FILES,
        ),
    ),
    "memory": ClientTool(
        "Keeps notes for later conversations as files below /memories.",
        _schema(
            "command",
            command=_one_of("view", "create", "str_replace", "insert", "delete", "rename"),
            **_FILES,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
    "computer": ClientTool(
        "Uses a computer's screen, mouse and keyboard.",
        _schema(
            "action",
            action=_one_of(
                *("screenshot", "cursor_position", "mouse_move", "left_click", "right_click"),
                *("middle_click", "double_click", "triple_click", "left_click_drag"),
                *("left_mouse_down", "left_mouse_up", "scroll", "key", "hold_key", "type"),
                *("wait", "zoom"),
            ),
            coordinate=_numbers(2, _POINT),
            start_coordinate=_numbers(2, f"left_click_drag: where it begins. {_POINT}"),
            region=_numbers(4, "zoom: left, top, right and bottom, in pixels."),
            text=_TEXT | {"description": "What to type, or the keys to press (ctrl+s)."},
            scroll_direction=_one_of("up", "down", "left", "right"),
            scroll_amount=_NUMBER,
            duration={"type": "number", "description": "Seconds, for hold_key and wait."},
        ),
    ),
}
