"""Blocks of a reply as clients are shown them, streamed or whole. It must not know frames, or the
order in which blocks are told.

What the blocks of one messages stream share while it is spoken. It must not know what they say.

Public grammar: Messages, "Streaming messages"; one block at a time, indexes without gaps.

Texts, reasoning and whole blocks as a messages stream tells them. It must not know calls, or
which block comes next.

Calls as a messages stream tells them, and web searches with what they found. It must not know
which call's turn it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import orjson

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, ServerToolCall, ServerToolResult, ToolCall
from gateway.wire.codec import ReplyMetadata
from gateway.wire.ids import sanitize_name
from gateway.wire.json_fields import Payload
from gateway.wire.messages.content import native_data, render_citation
from gateway.wire.messages.json_stream import ArgumentStream
from gateway.wire.messages.tools import WEB_SEARCH, ForeignSearch, foreign_search_id
from gateway.wire.signatures import wrap
from gateway.wire.tool_names import upstream_name

EMPTY_TEXT: Final[Payload] = {"type": "text", "text": ""}
"""The content of a message that has none: coding agents take a message without any for a failure
and ask again."""


def render_call(call: ToolCall, writer: BlockWriter) -> Payload:
    """A call of the client's tools before its input. Names without a namespace are the client's own
    already."""
    name = upstream_name(call.name, call.namespace) if call.namespace else call.name
    block = {"type": "tool_use", "id": writer.call_id(call.id), "name": name, "input": {}}
    return block | (native_data(call.extra) or {})


def render_server_call(call: ServerToolCall, writer: BlockWriter) -> Payload | None:
    """The same for a call that an upstream of this format runs; None where it is another's."""
    own = native_data(call.extra)
    if own is None and (call.name == WEB_SEARCH or call.extra is not None):
        return None
    block = {
        "type": "server_tool_use",
        "id": writer.call_id(call.id),
        "name": call.name,
        "input": {},
    }
    return block | (own or {})


def render_server_result(result: ServerToolResult, writer: BlockWriter) -> Payload | None:
    """What a tool of this format's own upstream has found; None where it is another's."""
    if (own := native_data(result.content)) is None:
        return None
    return own | {"tool_use_id": writer.result_id(result.call_id)}


def render_search(shown: str) -> Payload:
    """A search that an upstream of another format ran, before its input."""
    return {"type": "server_tool_use", "id": shown, "name": WEB_SEARCH, "input": {}}


def render_search_result(call_id: str, search: ForeignSearch) -> Payload:
    """What such a search has found."""
    return {
        "type": f"{WEB_SEARCH}_tool_result",
        "tool_use_id": call_id,
        "content": search.results,
    }


Piece = str | Signature | Citation

DELTA_SUFFIX: Final = b"}}\n\n"
"""What follows the piece in a delta's frame."""
_DELTA_PREFIX: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
    b'"delta":{"type":"%b","%b":'
)
_BLOCK_STOP: Final = (
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
)


def delta_frames(prefix: bytes, json_texts: Sequence[bytes]) -> bytes:
    """The frames of pieces of one part; `head` is what comes before each of them, and `spelled`
    says how JSON spells them inside their quotes."""
    between = b'"%b%b"' % (DELTA_SUFFIX, prefix)
    return b'%b"%b"%b' % (prefix, between.join(json_texts), DELTA_SUFFIX)


class StreamBlock(Protocol):
    """One block: it starts with the first thing that it has to say, and what never says anything
    is never shown. Pieces that do not fit it are left out."""

    def add(self, piece: Piece) -> bytes: ...

    def close(self) -> bytes: ...


class BlockWriter:
    """What the blocks of one message share: the next index, whether one is being told, what was
    lost on the way, and the ids that are taken."""

    __slots__ = ("_client_ids", "_ids", "_metadata", "block_open", "dropped", "index")

    def __init__(self, stamp: ReplyMetadata) -> None:
        self._metadata = stamp
        self.index = -1
        self.block_open = False
        self.dropped: set[str] = set()
        self._ids: set[str] = set()
        self._client_ids: dict[str, str] = {}

    def start(self, block: Payload) -> bytes:
        self.index += 1
        self.block_open = True
        data = {"type": "content_block_start", "index": self.index, "content_block": block}
        return b"event: content_block_start\ndata: %b\n\n" % orjson.dumps(data)

    def delta_prefix(self, kind: bytes, field: bytes) -> bytes:
        """All of a delta's frame that comes before the piece."""
        return _DELTA_PREFIX % (self.index, kind, field)

    def stop(self) -> bytes:
        if not self.block_open:
            return b""
        self.block_open = False
        return _BLOCK_STOP % self.index

    def call_id(self, id: str, shown: str | None = None) -> str:
        """The id that a call is shown under, `shown` if need be: a legal one that no other call of
        this message has."""
        new = sanitize_name(shown or id) if id else ""
        if not new or new in self._ids:
            new = f"toolu_{self._metadata.reply_id}_{len(self._ids)}"
        self._ids.add(new)
        self._client_ids[id] = new
        return new

    def result_id(self, id: str) -> str:
        """The id that the call of a result was shown under."""
        return self._client_ids.get(id) or sanitize_name(id)

    def signature(self, value: ProviderData | None, *, redacted: bool = False) -> str:
        """This format's own signatures as they are, others as something that comes back."""
        if value and value.format is Format.MESSAGES and isinstance(value.data, str) and value.data:
            return value.data
        return wrap(value, self._metadata.origin, redacted=redacted)


class NullBlock:
    """A part that this format has no word for."""

    __slots__ = ()

    def add(self, piece: Piece) -> bytes:
        return b""

    def close(self) -> bytes:
        return b""


class CompleteBlock(NullBlock):
    """A block of this format that is complete at its start."""

    __slots__ = ("_block", "_writer")

    def __init__(self, mouth: BlockWriter, block: Payload) -> None:
        self._writer = mouth
        self._block = block

    def close(self) -> bytes:
        return self._writer.start(self._block) + self._writer.stop()


class TextBlock:
    __slots__ = ("_prefix", "_texts", "_writer")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._prefix = b""
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All that it has said so far."""
        return "".join(self._texts)

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str and self._prefix:
            self._texts.append(piece)
            return self._prefix + orjson.dumps(piece) + DELTA_SUFFIX
        return self._add_first_or_citation(piece)

    def add_texts(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Several pieces at once, and how JSON spells each of them inside its quotes."""
        start = b"" if self._prefix else self._add_first_or_citation("")
        self._texts += texts
        return start + delta_frames(self._prefix, json_texts)

    def close(self) -> bytes:
        return self._writer.stop()

    def _add_first_or_citation(self, piece: Piece) -> bytes:
        """The first piece, or a citation."""
        start = b""
        if not self._prefix:
            start = self._writer.start({"type": "text", "text": ""})
            self._prefix = self._writer.delta_prefix(b"text_delta", b"text")
        if isinstance(piece, str):
            return start + self.add(piece)
        if isinstance(piece, Citation):
            return start + self._add_citation(piece)
        return start

    def _add_citation(self, citation: Citation) -> bytes:
        shown = render_citation(citation, self.text)
        if shown is None:
            self._writer.dropped.add("citations")
            return b""
        return (
            self._writer.delta_prefix(b"citations_delta", b"citation")
            + orjson.dumps(shown)
            + DELTA_SUFFIX
        )


class ThinkingBlock:
    """The signature is told last and once: clients keep the last one they hear."""

    __slots__ = ("_prefix", "_signature", "_writer")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._prefix = b""
        self._signature: ProviderData | None = None

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str:
            return self._start() + self._prefix + orjson.dumps(piece) + DELTA_SUFFIX
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""

    def add_texts(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Several pieces at once, and how JSON spells each of them inside its quotes."""
        start = self._start()
        return start + delta_frames(self._prefix, json_texts)

    def close(self) -> bytes:
        if not self._prefix and self._signature is None:
            return b""
        start = self._start()
        signature = orjson.dumps(self._writer.signature(self._signature))
        head = self._writer.delta_prefix(b"signature_delta", b"signature")
        return start + head + signature + DELTA_SUFFIX + self._writer.stop()

    def _start(self) -> bytes:
        if self._prefix:
            return b""
        start = self._writer.start({"type": "thinking", "thinking": "", "signature": ""})
        self._prefix = self._writer.delta_prefix(b"thinking_delta", b"thinking")
        return start


class RedactedBlock:
    """Reasoning that nobody can read: the block is nothing but its proof."""

    __slots__ = ("_signature", "_writer")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._signature: ProviderData | None = None

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""

    def close(self) -> bytes:
        if self._signature is None:
            return b""
        data = self._writer.signature(self._signature, redacted=True)
        return self._writer.start({"type": "redacted_thinking", "data": data}) + self._writer.stop()


class CallBlock:
    """A call that the client runs, or an upstream of this format. It may have to wait for its turn:
    then `start` tells at once what has come of it by then. `closed`: all of it has come."""

    __slots__ = ("_arguments", "_block", "_buffered", "_finished", "_prefix", "_writer", "closed")

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

    __slots__ = ("_arguments", "_id", "_searches", "_writer")

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

    __slots__ = ("_call_id", "_searches", "_writer")

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
