"""Recognises frames that differ from an earlier one only in their text, as most of a stream do.

A frame that begins and ends with the same bytes as an earlier single text delta, and has no quote
in between, can only be the next delta of the same text: it is not parsed, and edited in the same
way. Whole runs are edited, or their texts read, in one step. Frames that do not match
are decoded, so only speed depends on this.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final, Literal

from orjson import loads

_MAX_ATTEMPTS: Final = 4
"""Frames learned without a match after which the stream's frames differ elsewhere too."""

_PLAIN_TEXT: Final = re.compile(r"[A-Za-z0-9 ]{1,64}")
_ESCAPED: Final = re.compile(rb"[\\\x00-\x09\x0b-\x1f]")
"""Bytes that make the inside of a JSON string differ from its text."""

_UNESCAPED: Final = re.compile(rb'[^"\\\x00-\x1f]*')
"""The inside of a JSON string that is its text."""

_VOLATILE_FIELDS: Final = re.compile(
    rb',\s?"(?:sequence_number":\s?\d+|obfuscation":\s?"[^"\\\n]*")'
)
"""Fields that change with every frame and do not affect its text: numbers, and padding that hides
text lengths. Their quotes are bare, so no text can look like them."""

_CONTEXT_QUOTES: Final = 3
"""Quotes before an edit that identify a key: a text has only one quote before it."""

_BARE_QUOTE: Final = re.compile(rb'[^\\]"')
"""Bytes with a bare quote are in no text."""


class FrameTemplate:
    """The bytes before and after the text in the frames of one stream."""

    __slots__ = (
        *("_after_volatile", "_attempts_left", "_edited_head", "_edited_tail", "_edits"),
        *("_has_volatile", "_head", "_max_length", "_prefix", "_separator", "_tail"),
    )

    def __init__(self) -> None:
        self._attempts_left = _MAX_ATTEMPTS
        self._prefix = self._head = self._tail = b""
        self._edited_head = self._edited_tail = b""
        self._edits: list[tuple[bytes, bytes]] = []
        self._has_volatile = False
        self._max_length = 0  # bytes of a chunk that may be a single frame; longer ones are several
        self._after_volatile: bytes | None = None  # from the first volatile field to the text
        self._separator = b"\n\n"

    def reset(self) -> None:
        """The part has ended: the same bytes would have another meaning."""
        self._prefix = b""

    def learn(self, raw: bytes, rewritten: bytes, text: str) -> bool:
        """`raw` was decoded as the delta `text` and sent as `rewritten`. True where it is a
        template: the text occurs once, without escapes."""
        if not self._attempts_left or not _PLAIN_TEXT.fullmatch(text):
            return False
        self._attempts_left -= 1
        json_text = b'"%b"' % text.encode()
        volatile = _VOLATILE_FIELDS.search(raw)
        stable = _VOLATILE_FIELDS.sub(b"", raw) if volatile else raw
        if not raw.count(json_text) == stable.count(json_text) == rewritten.count(json_text) == 1:
            return False
        head, tail = _split_around(stable, json_text)
        edits = [] if rewritten == raw else _find_edits(raw, stable, rewritten, json_text)
        separator = b"\r\n\r\n" if tail.endswith(b"\r\n\r\n") else b"\n\n"
        if edits is None or not tail.endswith(separator):
            return False
        self._head, self._tail, self._edits = head, tail, edits
        if edits:
            self._edited_head = _apply_edits(head, edits)
            self._edited_tail = _apply_edits(tail, edits)
        self._has_volatile = volatile is not None
        self._max_length = 2 * len(raw)
        self._separator = separator
        self._prefix = head[: volatile.start()] if volatile else head
        self._after_volatile = head[len(self._prefix) :] or None
        return True

    def matches(self, frames: bytes, start: int) -> bool:
        """Tells whether the frame at `start` begins like the template."""
        return bool(self._prefix) and frames.startswith(self._prefix, start)

    def match_run(
        self, frames: bytes, start: int, stop: int | None = None
    ) -> tuple[int, list[bytes]] | None:
        """Finds where the run of matching frames at `start` ends, and their texts as the insides of
        JSON strings; None where that is uncertain. `frames` are complete frames, of which those
        before `stop` are examined."""
        rest = frames[start:stop]
        texts = self._leading_texts(_VOLATILE_FIELDS.sub(b"", rest) if self._has_volatile else rest)
        if not texts:
            return None
        self._attempts_left = _MAX_ATTEMPTS
        if self._has_volatile:
            *_, remainder = rest.split(self._separator, len(texts))
            return start + len(rest) - len(remainder), texts
        around = len(texts) * (len(self._head) + len(self._tail))
        return start + around + sum(map(len, texts)), texts

    def match_one(self, frames: bytes, start: int) -> tuple[int, list[bytes]] | None:
        """Matches the single frame at `start`, like `match_run`."""
        end = frames.find(self._separator, start) + len(self._separator)
        return self.match_run(frames, start, end)

    def match_chunk(self, chunk: bytes) -> bytes | None:
        """The text of a chunk that is exactly one matching frame, where it has no escapes; else
        None."""
        prefix = self._prefix
        if not prefix or len(chunk) > self._max_length or not chunk.startswith(prefix):
            return None
        begin = len(prefix)
        if self._after_volatile is not None:
            volatile = _VOLATILE_FIELDS.match(chunk, begin)
            if volatile is None or not chunk.startswith(self._after_volatile, volatile.end()):
                return None
            begin = volatile.end() + len(self._after_volatile)
        end = chunk.find(b'"', begin)
        if end < 0 or not self._is_tail(chunk[end:]) or not _UNESCAPED.fullmatch(chunk, begin, end):
            return None
        self._attempts_left = _MAX_ATTEMPTS
        return chunk[begin:end]

    def _is_tail(self, rest: bytes) -> bool:
        """Tells whether this follows the text of one matching frame."""
        if rest == self._tail or not self._has_volatile:
            return rest == self._tail
        is_single = rest.find(self._separator) == len(rest) - len(self._separator)
        return is_single and _VOLATILE_FIELDS.sub(b"", rest) == self._tail

    def apply(self, frames: bytes, start: int, end: int, json_texts: list[bytes]) -> bytes:
        """A matched run, edited; `json_texts` are its texts."""
        if not self._edits:
            return frames[start:end]
        if self._has_volatile:
            return _apply_edits(frames[start:end], self._edits)
        head, tail = self._edited_head, self._edited_tail
        return head + (tail + head).join(json_texts) + tail

    def _leading_texts(self, stable: bytes) -> list[bytes]:
        """The texts of the frames up to the first one that does not match."""
        # Splitting at the bytes between two texts takes three times as long: the search for such
        # a long separator starts over each time.
        blocks = stable.split(self._separator)
        head, tail = self._head, self._tail[: -len(self._separator)]
        begin, end = len(head), -len(tail)
        count = len(blocks)
        while count and not self._is_match(blocks[count - 1]):
            count -= 1
        texts = [block[begin:end] for block in blocks[:count]]
        if not stable.startswith(head + (self._tail + head).join(texts)):
            texts = [block[begin:end] for block in takewhile(self._is_match, blocks)]
        joined = b"\n".join(texts)
        if (
            b'"' in joined
            or joined.count(b"\n") >= max(1, len(texts))
            or b"\\\n" in joined
            or joined.endswith(b"\\")
        ):
            return [*takewhile(_is_string_content, texts)]
        return texts

    def _is_match(self, block: bytes) -> bool:
        head, tail = self._head, self._tail[: -len(self._separator)]
        is_long = len(block) >= len(head) + len(tail)
        return is_long and block.startswith(head) and block.endswith(tail)


def parse_json_texts(json_texts: list[bytes]) -> list[str] | None:
    """The texts of insides of JSON strings; None where one of them is invalid."""
    joined = b"\n".join(json_texts)
    try:
        if _ESCAPED.search(joined):
            return [loads(b'"%b"' % text) for text in json_texts]
        return joined.decode().split("\n")
    except ValueError:
        return None


def count_json_characters(json_texts: list[bytes]) -> int:
    """The number of characters, exact or nearly: texts are only parsed for `\\u` escapes, as most
    others are two bytes for one character."""
    joined = b"".join(json_texts)
    escapes = joined.count(b"\\")
    if escapes and b"\\u" in joined and (texts := parse_json_texts(json_texts)) is not None:
        return sum(map(len, texts))
    if joined.isascii():
        return len(joined) - escapes
    return len(joined.decode("utf-8", "replace")) - escapes


def _is_string_content(json_text: bytes) -> bool:
    """Tells whether it is the inside of one JSON string: a line end would make it another frame,
    and a backslash at its end would escape the quote after it."""
    return not (b'"' in json_text or b"\n" in json_text or json_text.endswith(b"\\"))


def _split_around(frame: bytes, json_text: bytes) -> tuple[bytes, bytes]:
    before, _, after = frame.partition(json_text)
    return before + b'"', b'"' + after


def _find_edits(
    raw: bytes, stable: bytes, rewritten: bytes, json_text: bytes
) -> list[tuple[bytes, bytes]] | None:
    """Finds what to replace by what; None if that may not hold for all matching frames."""
    pairs = zip(_split_around(raw, json_text), _split_around(rewritten, json_text), strict=True)
    edits = [_make_edit(before, after) for before, after in pairs if before != after]
    if not all(_is_unique(old, raw, stable) for old, _ in edits):
        return None
    return edits if _apply_edits(raw, edits) == rewritten else None


def _make_edit(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """One edit, with enough context in front that no text can contain it."""
    length = min(len(before), len(after))
    start = _common_bytes(before[:length], after[:length], "big")
    length -= start
    same = _common_bytes(before[len(before) - length :], after[len(after) - length :], "little")
    for _ in range(_CONTEXT_QUOTES):
        start = max(before.rfind(b'"', 0, start), 0)
    start = max(start - 1, 0)
    return before[start : len(before) - same], after[start : len(after) - same]


def _common_bytes(one: bytes, other: bytes, order: Literal["big", "little"]) -> int:
    """Counts the bytes that two texts of the same length share at the front (`big`) or the back
    (`little`); as numbers they differ from the first different byte on."""
    difference = int.from_bytes(one, order) ^ int.from_bytes(other, order)
    return len(one) - (difference.bit_length() + 7) // 8


def _apply_edits(frames: bytes, edits: list[tuple[bytes, bytes]]) -> bytes:
    for old, new in edits:
        frames = frames.replace(old, new)
    return frames


def _is_unique(old: bytes, raw: bytes, stable: bytes) -> bool:
    """Tells whether it is this one place of the frame, and of all that match it."""
    if b"\n" in old or not _BARE_QUOTE.search(old):
        return False
    return raw.count(old) == stable.count(old) == 1
