"""Calls as a messages stream tells them, and web searches with what they found. It must not know
which call's turn it is.
"""

from __future__ import annotations

import orjson

from gateway.wire.fields import Payload
from gateway.wire.messages.arguments import Arguments
from gateway.wire.messages.mouth import TAIL, Mouth, Piece
from gateway.wire.messages.search import NAME, Search, shown_id
from gateway.wire.messages.shown import shown_results, shown_search
from gateway.wire.messages.spoken import SilentBlock


class CallBlock:
    """A call that the client runs, or an upstream of this format. It may have to wait for its turn:
    then `start` tells at once what has come of it by then. `closed`: all of it has come."""

    __slots__ = ("_arguments", "_block", "_head", "_mouth", "_told", "_waiting", "closed")

    def __init__(self, mouth: Mouth, block: Payload, arguments: Arguments) -> None:
        self._mouth = mouth
        self._block = block
        self._arguments = arguments
        self._head = b""
        self._waiting: list[str] = []
        self._told = False
        self.closed = False

    @property
    def complete(self) -> bool:
        """Whether nothing that matters can come any more."""
        return self.closed or self._arguments.complete

    def start(self) -> bytes:
        start = self._mouth.start(self._block)
        self._head = self._mouth.head(b"input_json_delta", b"partial_json")
        waiting, self._waiting = "".join(self._waiting), []
        return start + self.add(waiting)

    def add(self, piece: Piece) -> bytes:
        if not isinstance(piece, str) or self._told:
            return b""
        if not self._head:
            self._waiting.append(piece)
            return b""
        return self._tell(self._arguments.feed(piece))

    def close(self) -> bytes:
        """Once only, and after `start`."""
        if self._told:
            return b""
        end = self._tell(self._arguments.finish()) + self._mouth.stop()
        self._told = True
        return end

    def _tell(self, arguments: str) -> bytes:
        return self._head + orjson.dumps(arguments) + TAIL if arguments else b""


Searches = dict[str, Search]
"""The web searches of one message that an upstream of another format ran, by their ids there."""


class SearchBlock:
    """Such a search, told when all of it is known."""

    __slots__ = ("_arguments", "_id", "_mouth", "_searches")

    def __init__(self, mouth: Mouth, searches: Searches, id: str) -> None:
        self._mouth = mouth
        self._searches = searches
        self._id = id
        self._arguments: list[str] = []

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._arguments.append(piece)
        return b""

    def close(self) -> bytes:
        search = Search("".join(self._arguments))
        if not search.query:
            self._mouth.lost.add(NAME)
            return b""
        shown = self._mouth.call_id(self._id, shown_id(self._id))
        self._searches[self._id] = search
        start = self._mouth.start(shown_search(shown))
        head = self._mouth.head(b"input_json_delta", b"partial_json")
        query = orjson.dumps({"query": search.query}).decode()
        return start + head + orjson.dumps(query) + TAIL + self._mouth.stop()


class FoundBlock(SilentBlock):
    """What such a search has found."""

    __slots__ = ("_call_id", "_mouth", "_searches")

    def __init__(self, mouth: Mouth, searches: Searches, call_id: str) -> None:
        self._mouth = mouth
        self._searches = searches
        self._call_id = call_id

    def close(self) -> bytes:
        if self._call_id not in self._searches:
            self._mouth.lost.add(NAME)
            return b""
        shown, search = self._mouth.result_id(self._call_id), self._searches.pop(self._call_id)
        return self._mouth.start(shown_results(shown, search)) + self._mouth.stop()
