"""Calls as a messages stream tells them, and web searches with what they found. It must not know
which call's turn it is.
"""

from __future__ import annotations

import orjson

from gateway.wire.fields import Payload
from gateway.wire.messages.arguments import ArgumentStream
from gateway.wire.messages.mouth import DELTA_SUFFIX, BlockWriter, Piece
from gateway.wire.messages.search import WEB_SEARCH, ForeignSearch, foreign_search_id
from gateway.wire.messages.shown import render_search_result, render_search
from gateway.wire.messages.spoken import NullBlock


class CallBlock:
    """A call that the client runs, or an upstream of this format. It may have to wait for its turn:
    then `start` tells at once what has come of it by then. `closed`: all of it has come."""

    __slots__ = ("_arguments", "_block", "_prefix", "_writer", "_finished", "_buffered", "closed")

    def __init__(self, mouth: BlockWriter, block: Payload, arguments: ArgumentStream) -> None:
        self._writer = mouth
        self._block = block
        self._arguments = arguments
        self._prefix = b""
        self._buffered: list[str] = []
        self._finished = False
        self.closed = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing that matters can come any more."""
        return self.closed or self._arguments.is_complete

    def start(self) -> bytes:
        start = self._writer.start(self._block)
        self._prefix = self._writer.delta_prefix(b"input_json_delta", b"partial_json")
        waiting, self._buffered = "".join(self._buffered), []
        return start + self.add(waiting)

    def add(self, piece: Piece) -> bytes:
        if not isinstance(piece, str) or self._finished:
            return b""
        if not self._prefix:
            self._buffered.append(piece)
            return b""
        return self._delta(self._arguments.feed(piece))

    def close(self) -> bytes:
        """Once only, and after `start`."""
        if self._finished:
            return b""
        end = self._delta(self._arguments.finish()) + self._writer.stop()
        self._finished = True
        return end

    def _delta(self, arguments: str) -> bytes:
        return self._prefix + orjson.dumps(arguments) + DELTA_SUFFIX if arguments else b""


SearchesById = dict[str, ForeignSearch]
"""The web searches of one message that an upstream of another format ran, by their ids there."""


class SearchBlock:
    """Such a search, told when all of it is known."""

    __slots__ = ("_arguments", "_id", "_writer", "_searches")

    def __init__(self, mouth: BlockWriter, searches: SearchesById, id: str) -> None:
        self._writer = mouth
        self._searches = searches
        self._id = id
        self._arguments: list[str] = []

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._arguments.append(piece)
        return b""

    def close(self) -> bytes:
        search = ForeignSearch("".join(self._arguments))
        if not search.query:
            self._writer.dropped.add(WEB_SEARCH)
            return b""
        shown = self._writer.call_id(self._id, foreign_search_id(self._id))
        self._searches[self._id] = search
        start = self._writer.start(render_search(shown))
        head = self._writer.delta_prefix(b"input_json_delta", b"partial_json")
        query = orjson.dumps({"query": search.query}).decode()
        return start + head + orjson.dumps(query) + DELTA_SUFFIX + self._writer.stop()


class SearchResultBlock(NullBlock):
    """What such a search has found."""

    __slots__ = ("_call_id", "_writer", "_searches")

    def __init__(self, mouth: BlockWriter, searches: SearchesById, call_id: str) -> None:
        self._writer = mouth
        self._searches = searches
        self._call_id = call_id

    def close(self) -> bytes:
        if self._call_id not in self._searches:
            self._writer.dropped.add(WEB_SEARCH)
            return b""
        shown, search = self._writer.result_id(self._call_id), self._searches.pop(self._call_id)
        return self._writer.start(render_search_result(shown, search)) + self._writer.stop()
