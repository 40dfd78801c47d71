"""Web searches that an upstream of another format ran, as messages clients are told of them.

Clients echo such blocks with the history, where no messages upstream would know them: the ids given
here are how they are recognised. It must not know how blocks stream or which upstream searched.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.core.parts import Part, ServerToolCall, ServerToolResult
from gateway.wire.fields import Payload
from gateway.wire.identity import legal
from gateway.wire.lenient import read_object, read_objects, read_text

NAME: Final = "web_search"
_FOREIGN: Final = "srvtoolu_gw1_"


def shown_id(call_id: str) -> str:
    """The id under which a foreign search is shown: this format's own kind of id."""
    return _FOREIGN + legal(call_id).replace("-", "_")


def was_foreign(part: Part) -> bool:
    """Whether a part of the history tells of a search that no messages upstream ran."""
    match part:
        case ServerToolCall(id=call_id) | ServerToolResult(call_id=call_id):
            return call_id.startswith(_FOREIGN)
        case _:
            return False


class Search:
    """One search: `query`, and `results` as its own result block lists them. None of the foreign
    upstream's actions but a search has a counterpart here."""

    __slots__ = ("query", "results")

    def __init__(self, arguments: str) -> None:
        action = _loads(arguments)
        self.query = read_text(action.get("query"))
        self.results = [
            {
                "type": "web_search_result",
                "url": url,
                "title": read_text(source.get("title")) or url,
                "encrypted_content": "",
                "page_age": None,
            }
            for source in read_objects(action.get("sources"))
            if (url := read_text(source.get("url")))
        ]


def _loads(arguments: str) -> Payload:
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {}
    return read_object(value)
