"""Estimates a prompt's input tokens from its characters.

No tokenizer: each character has a price by its class, fitted to the vocabularies of three vendors
over prose, code, markup, listings and two dozen languages. `quota.estimates` learns from finished
requests how a model differs.
"""

from __future__ import annotations

import string
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    Document,
    Image,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import OutputFormat, Prompt, Tool, ToolKind
from gateway.wire.images import image_size

PER_TURN: Final = 4
PER_CALL: Final = 8
PER_TOOL: Final = 8
"""Tokens around a turn, a call or its result, and a tool's definition."""

MAX_IMAGE: Final = 1600
PIXELS_PER_TOKEN: Final = 750
"""Larger images are scaled down first; one of unknown size counts as large."""

CHAT_IMAGE: Final = 765
LOW_DETAIL_IMAGE: Final = 85
"""Images in the other formats, which count tiles, at high and at low detail."""

PAGE: Final = 2000
BYTES_PER_PAGE: Final = 50_000
DEFAULT_PAGES: Final = 5
"""Documents are read page by page; this many are assumed where the request has no file."""

AUDIO_BYTES_PER_TOKEN: Final = 1600
ENCRYPTED_BYTES_PER_TOKEN: Final = 6
"""Encrypted reasoning is longer than its text."""


def _bytes(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


_PRICES: Final = (
    (21, string.ascii_lowercase.encode()),
    (38, string.ascii_uppercase.encode()),
    (65, string.digits.encode()),
    (47, string.punctuation.encode()),
    (12, b" "),
    (130, b"\t\n\r"),
    (170, _bytes(0xC2, 0xCD)),  # Latin with accents, which split words
    (60, b"\xce\xcf"),  # Greek
    (42, _bytes(0xD0, 0xD3)),  # Cyrillic
    (55, _bytes(0xD4, 0xDF)),  # Armenian, Hebrew, Arabic
    (65, b"\xe0\xe1"),  # Indic, Georgian, Vietnamese
    (140, b"\xe2"),  # dashes, quotes, arrows, box drawing
    (80, b"\xe3"),  # kana
    (85, _bytes(0xE4, 0xE9)),  # Chinese characters
    (90, _bytes(0xEA, 0xED)),  # Hangul
    (100, b"\xee\xef"),  # full width and private use
    (250, _bytes(0xF0, 0xF4)),  # emoji
    (0, _bytes(0x80, 0xBF)),  # continuation bytes
)
"""Hundredths of a token for a character, by its first byte in UTF-8."""

_OTHER: Final = 100

_PRICE_OF: Final = bytes(
    next((price for price, members in _PRICES if byte in members), _OTHER) for byte in range(256)
)
_LETTERS: Final = string.ascii_lowercase.encode()
_PRICE_OF_LETTER: Final = _PRICE_OF[_LETTERS[0]]
"""Half of most texts: counted instead of summed."""

_MODULUS: Final = 65521
_SUMMED: Final = (_MODULUS - 1) // max(_PRICE_OF)
_SUMMED_ASCII: Final = (_MODULUS - 1) // max(_PRICE_OF[:128])
"""Bytes whose sum is exact in Adler-32: its lower half is the sum plus one, by this modulus."""

_SHORT: Final = 4096
"""Characters of a text that is priced together with others."""

_PIECE: Final = 16 * 1024
"""Characters that are priced in one step, as they fit the processor's cache."""


def estimate_tokens(prompt: Prompt) -> int:
    """Input tokens of a prompt of any format, never 0; more text never counts less."""
    count = _Counter(prompt.format)
    for turn in prompt.turns:
        count.tokens += PER_TURN
        count.parts(turn.parts)
    for tool in prompt.tools:
        count.tool(tool)
    if prompt.output is not None:
        count.output(prompt.output)
    return max(1, count.tokens + -(-count.total() // 100))


def _price(text: str) -> int:
    if len(text) <= _PIECE:
        return _price_of_bytes(text.encode("utf-8", "surrogatepass"))
    pieces = (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
    return sum(_price_of_bytes(piece.encode("utf-8", "surrogatepass")) for piece in pieces)


def _price_of_bytes(text: bytes) -> int:
    prices, adler32 = text.translate(_PRICE_OF, _LETTERS), zlib.adler32
    size = _SUMMED_ASCII if text.isascii() else _SUMMED
    starts = range(0, len(prices), size)
    summed = sum([adler32(prices[start : start + size]) & 0xFFFF for start in starts])
    return summed - len(starts) + _PRICE_OF_LETTER * (len(text) - len(prices))


class _Counter:
    """Adds up texts, in hundredths of a token, and everything else, in tokens."""

    __slots__ = ("_format", "_hundredths", "_short", "tokens")

    def __init__(self, format: Format) -> None:
        self._format = format
        self._hundredths = 0
        self._short: list[str] = []
        self.tokens = 0

    def total(self) -> int:
        """Of all texts. The short ones are priced together, which is faster than one by one."""
        return self._hundredths + _price("".join(self._short))

    def text(self, text: str | None) -> None:
        if text and len(text) <= _SHORT:
            self._short.append(text)
        elif text:
            self._hundredths += _price(text)

    def json(self, data: object) -> None:
        if data is not None:
            self._hundredths += _price_of_bytes(_json(data))

    def parts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if type(part) is Text:
                self.text(part.text)
            else:
                _COUNTS[type(part)](self, part)

    def plain_text(self, part: Text | Refusal) -> None:
        self.text(part.text)

    def thinking(self, part: Thinking) -> None:
        self.text(part.text)
        if part.signature is not None and not part.text:
            self.tokens += len(_json(part.signature.data)) // ENCRYPTED_BYTES_PER_TOKEN

    def call(self, part: ToolCall | ServerToolCall) -> None:
        self.tokens += PER_CALL
        self.text(part.name)
        self.text(part.arguments)

    def result(self, part: ToolResult) -> None:
        self.tokens += PER_CALL
        self.parts(part.parts)

    def server_result(self, part: ServerToolResult) -> None:
        self.tokens += PER_CALL
        self.json(part.content.data)

    def image(self, part: Image) -> None:
        if self._format is Format.MESSAGES:
            self.tokens += _image_tokens(part.source)
        else:
            self.tokens += LOW_DETAIL_IMAGE if part.detail == "low" else CHAT_IMAGE

    def document(self, part: Document) -> None:
        for text in (part.title, part.context, part.text):
            self.text(text)
        if part.source is not None:
            self.tokens += _document_tokens(part.source)

    def audio(self, part: Audio) -> None:
        self.tokens += 1 + _size(part.source) // AUDIO_BYTES_PER_TOKEN

    def unknown(self, part: UnknownPart) -> None:
        self.json(part.data.data)

    def tool(self, tool: Tool) -> None:
        self.tokens += PER_TOOL
        self.text(tool.name)
        self.text(tool.description)
        self.json(tool.schema)
        self.json(tool.grammar)
        if tool.kind is ToolKind.SERVER and tool.definition is not None:
            self.json(tool.definition.data)

    def output(self, output: OutputFormat) -> None:
        self.text(output.name)
        self.text(output.description)
        self.json(output.schema)


def _json(data: object) -> bytes:
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError:  # nested too deeply to be sent
        return b""


def _image_tokens(source: Source) -> int:
    size = image_size(source.data) if source.data else None
    if size is None:
        return MAX_IMAGE
    width, height = size
    return min(MAX_IMAGE, max(1, width * height // PIXELS_PER_TOKEN))


def _document_tokens(source: Source) -> int:
    if source.data is None:
        return DEFAULT_PAGES * PAGE
    if (source.media_type or "").startswith("text/"):
        return _size(source) // 3
    return PAGE * (1 + _size(source) // BYTES_PER_PAGE)


def _size(source: Source) -> int:
    """Bytes of a base64 text."""
    return len(source.data or "") * 3 // 4


_COUNTS: Final[Mapping[type[Part], Callable[[_Counter, Any], None]]] = {
    Text: _Counter.plain_text,
    Refusal: _Counter.plain_text,
    Thinking: _Counter.thinking,
    ToolCall: _Counter.call,
    ToolResult: _Counter.result,
    ServerToolCall: _Counter.call,
    ServerToolResult: _Counter.server_result,
    Image: _Counter.image,
    Document: _Counter.document,
    Audio: _Counter.audio,
    UnknownPart: _Counter.unknown,
}
