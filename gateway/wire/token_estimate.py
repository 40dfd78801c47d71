"""Estimates a prompt's input tokens from its characters.

No tokenizer: each character has a price by its class, fitted to the vocabularies of three vendors
over prose, code, markup, listings and two dozen languages. `quota.estimates` learns from finished
requests how a model differs.
"""

from __future__ import annotations

import string
import zlib
from collections.abc import Iterable
from typing import Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    Document,
    Image,
    Part,
    ReplyField,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import OutputFormat, Prompt, Tool, ToolKind, Turn
from gateway.wire.images.sources import image_size
from gateway.wire.prompt.known_turns import UNSETTLED, Estimate, KnownTools, KnownTurns

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

_PRICE_OF: Final = bytes(
    next((price for price, members in _PRICES if byte in members), 100) for byte in range(256)
)
_PRICE_OF_LETTER, _LETTERS = _PRICES[0]
"""Half of most texts: counted instead of summed."""

_MODULUS: Final = 65521
_SUMMED: Final = (_MODULUS - 1) // max(_PRICE_OF)
_SUMMED_ASCII: Final = (_MODULUS - 1) // max(_PRICE_OF[:128])
"""Bytes whose sum is exact in Adler-32: its lower half is the sum plus one, by this modulus."""

_MAX_SHORT: Final = 4096
"""Characters of a text that is priced together with others."""

_STEP: Final = 16 * 1024
"""Characters that are priced in one step, as they fit the processor's cache."""


def estimate_tokens(prompt: Prompt) -> int:
    """Input tokens of a prompt of any format, never 0; more text never counts less."""
    count, turns = _Counter(prompt.format), prompt.turns
    if type(turns) is KnownTurns:
        count.known(turns)
        turns = turns[: turns.first]
    for turn in turns:
        count.tokens += PER_TURN
        count.parts(turn.parts)
    if type(prompt.tools) is KnownTools:
        count.known_tools(prompt.tools)
    else:
        for tool in prompt.tools:
            count.tool(tool)
    if prompt.output is not None:
        count.output(prompt.output)
    return max(1, count.tokens + -(-count.total() // 100))


def _price(text: str) -> int:
    """Hundredths of a token."""
    if len(text) > _STEP:
        return sum(_price(text[start : start + _STEP]) for start in range(0, len(text), _STEP))
    return _price_of_bytes(text.encode("utf-8", "surrogatepass"))


def _price_of_bytes(text: bytes) -> int:
    prices, adler32 = text.translate(_PRICE_OF, _LETTERS), zlib.adler32
    size = _SUMMED_ASCII if text.isascii() else _SUMMED
    starts = range(0, len(prices), size)
    summed = sum([adler32(prices[start : start + size]) & 0xFFFF for start in starts])
    return summed - len(starts) + _PRICE_OF_LETTER * (len(text) - len(prices))


class _Counter:
    """Adds up texts, in hundredths of a token, and everything else, in tokens."""

    __slots__ = ("_format", "_hundredths", "_json", "_short", "tokens")

    def __init__(self, format: Format) -> None:
        self._format = format
        self._hundredths = 0
        self._json: list[bytes] = []
        self._short: list[str] = []
        self.tokens = 0

    def total(self) -> int:
        """Counts all texts; the short ones are priced together, which is faster than one by one."""
        return (
            self._hundredths + _price("".join(self._short)) + _price_of_bytes(b"".join(self._json))
        )

    def turns(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            self.tokens += PER_TURN
            self.parts(turn.parts)

    def known(self, turns: KnownTurns) -> None:
        """Counts the turns of messages; those with an estimate are not read again."""
        before, end = turns.messages.estimate, len(turns) - turns.first - UNSETTLED
        if end > before.end:
            count = _Counter(self._format)
            count.turns(turns[turns.first + before.end : turns.first + end])
            tokens, hundredths = before.tokens + count.tokens, before.hundredths + count.total()
            turns.messages.estimate = before = Estimate(end, tokens, hundredths)
        self.add(before)
        self.turns(turns[turns.first + before.end :])

    def known_tools(self, tools: KnownTools) -> None:
        if tools.estimate is None:
            count = _Counter(self._format)
            for tool in tools:
                count.tool(tool)
            tools.estimate = Estimate(0, count.tokens, count.total())
        self.add(tools.estimate)

    def add(self, estimate: Estimate) -> None:
        self.tokens += estimate.tokens
        self._hundredths += estimate.hundredths

    def text(self, text: str | None) -> None:
        if text and len(text) <= _MAX_SHORT:
            self._short.append(text)
        elif text:
            self._hundredths += _price(text)

    def json(self, data: object) -> None:
        if data is None:
            return
        text = _dump(data)
        if len(text) <= _MAX_SHORT:
            self._json.append(text)
        else:
            self._hundredths += _price_of_bytes(text)

    def parts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if type(part) is Text:
                self.text(part.text)
            else:
                self.other_part(part)

    def other_part(self, part: Part) -> None:
        match part:
            case ToolCall() | ServerToolCall():
                self.tokens += PER_CALL
                self.text(part.name)
                self.text(part.arguments)
            case ToolResult():
                self.tokens += PER_CALL
                self.parts(part.parts)
            case Thinking():
                self.text(part.text)
                if part.signature is not None and not part.text:
                    self.tokens += len(_dump(part.signature.data)) // ENCRYPTED_BYTES_PER_TOKEN
            case ServerToolResult():
                self.tokens += PER_CALL
                self.json(part.content.data)
            case Document():
                self.text(part.title)
                self.text(part.context)
                self.text(part.text)
                self.tokens += _document_tokens(part.source)
            case Image():
                self.tokens += _image_tokens(part, self._format)
            case Audio():
                self.tokens += 1 + _size(part.source) // AUDIO_BYTES_PER_TOKEN
            case UnknownPart() | ReplyField():
                self.json(part.data.data)
            case _:  # Refusal
                self.text(part.text)

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


def _dump(data: object) -> bytes:
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError:  # nested too deeply to be sent
        return b""


def _image_tokens(image: Image, format: Format) -> int:
    if format is not Format.MESSAGES:
        return LOW_DETAIL_IMAGE if image.detail == "low" else CHAT_IMAGE
    size = image_size(image.source.data) if image.source.data else None
    if size is None:
        return MAX_IMAGE
    width, height = size
    return min(MAX_IMAGE, max(1, width * height // PIXELS_PER_TOKEN))


def _document_tokens(source: Source | None) -> int:
    if source is None:
        return 0
    if source.data is None:
        return DEFAULT_PAGES * PAGE
    if (source.media_type or "").startswith("text/"):
        return _size(source) // 3
    return PAGE * (1 + _size(source) // BYTES_PER_PAGE)


def _size(source: Source) -> int:
    """Bytes of a base64 text."""
    return len(source.data or "") * 3 // 4
