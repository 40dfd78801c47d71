"""Web searches that an upstream of another format ran, as messages clients are told of them.

Clients echo such blocks with the history, where no messages upstream would know them: the ids given
here are how they are recognised. It must not know how blocks stream or which upstream searched.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.core.parts import Part, ServerToolCall, ServerToolResult
from gateway.wire.fields import Payload
from gateway.wire.identity import sanitize_name
from gateway.wire.lenient import lenient_object, lenient_objects, lenient_str

WEB_SEARCH: Final = "web_search"
_FOREIGN_PREFIX: Final = "srvtoolu_gw1_"


def foreign_search_id(call_id: str) -> str:
    """The id under which a foreign search is shown: this format's own kind of id."""
    return _FOREIGN_PREFIX + sanitize_name(call_id).replace("-", "_")


def is_foreign_search(part: Part) -> bool:
    """Whether a part of the history tells of a search that no messages upstream ran."""
    match part:
        case ServerToolCall(id=call_id) | ServerToolResult(call_id=call_id):
            return call_id.startswith(_FOREIGN_PREFIX)
        case _:
            return False


class ForeignSearch:
    """One search: `query`, and `results` as its own result block lists them. None of the foreign
    upstream's actions but a search has a counterpart here."""

    __slots__ = ("query", "results")

    def __init__(self, arguments: str) -> None:
        action = _load_object(arguments)
        self.query = lenient_str(action.get("query"))
        self.results = [
            {
                "type": "web_search_result",
                "url": url,
                "title": lenient_str(source.get("title")) or url,
                "encrypted_content": "",
                "page_age": None,
            }
            for source in lenient_objects(action.get("sources"))
            if (url := lenient_str(source.get("url")))
        ]


def _load_object(arguments: str) -> Payload:
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {}
    return lenient_object(value)
