"""Recognises frames that repeat the one before but for their text. It must not know any format.

Most frames of a stream are such repeats. A frame that begins and ends with the same bytes as one
that was read as a single piece of text, and has no quote in between, can only be the next piece of
that text: it needs no parsing, and it is edited as the other was. A whole run of them is edited in
one go, or its texts are read. Whatever is not recognised takes the ordinary way, so nothing depends
on this but speed.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final, Literal

from orjson import loads

_MAX_ATTEMPTS: Final = 4
"""Lessons without a recognition after which a stream is taken to vary elsewhere too."""

_PLAIN_TEXT: Final = re.compile(r"[A-Za-z0-9 ]{1,64}")
_ESCAPED: Final = re.compile(rb"[\\\x00-\x09\x0b-\x1f]")
"""What makes the inside of a JSON string something else than the text itself."""

_UNESCAPED: Final = re.compile(rb'[^"\\\x00-\x1f]*')
"""The inside of a JSON string that is the text itself."""

_VOLATILE_FIELDS: Final = re.compile(
    rb',\s?"(?:sequence_number":\s?\d+|obfuscation":\s?"[^"\\\n]*")'
)
"""Fields that are another in every frame and mean nothing for its text: numbers, and padding that
hides how long texts are. The quotes are bare, so no text can look like it."""

_CONTEXT_QUOTES: Final = 3
"""As many before an edit show a key, which no text can: a text has one quote in front of it."""

_BARE_QUOTE: Final = re.compile(rb'[^\\]"')
"""A bare quote: bytes with one in them stand in no text."""


class FrameTemplate:
    """One stream's model of a text frame: what stands before and after the text."""

    __slots__ = (
        *(
            "_after_volatile",
            "_separator",
            "_edited_head",
            "_edited_tail",
            "_edits",
            "_head",
            "_max_length",
        ),
        *("_prefix", "_tail", "_attempts_left", "_has_volatile"),
    )

    def __init__(self) -> None:
        self._attempts_left = _MAX_ATTEMPTS
        self._prefix = self._head = self._tail = b""
        self._edited_head = self._edited_tail = b""
        self._edits: list[tuple[bytes, bytes]] = []
        self._has_volatile = False
        self._max_length = (
            0  # bytes of a chunk that may be a single frame; longer ones hold several
        )
        self._after_volatile: bytes | None = (
            None  # what follows the first passing field, up to the text
        )
        self._separator = b"\n\n"

    def reset(self) -> None:
        """The part is over: the same bytes would now mean something else."""
        self._prefix = b""

    def learn(self, raw: bytes, rewritten: bytes, text: str) -> bool:
        """`raw` was read as the piece `text` of the open part and left as `rewritten`.

        Learned, which is told, only where the text stands once and is spelled plainly.
        """
        if not self._attempts_left or not _PLAIN_TEXT.fullmatch(text):
            return False
        self._attempts_left -= 1
        spelled = b'"%b"' % text.encode()
        passing = _VOLATILE_FIELDS.search(raw)
        alike = _VOLATILE_FIELDS.sub(b"", raw) if passing else raw
        if not raw.count(spelled) == alike.count(spelled) == rewritten.count(spelled) == 1:
            return False
        head, tail = _split_around(alike, spelled)
        edits: list[tuple[bytes, bytes]] = []
        if rewritten != raw:
            for before, after in zip(
                _split_around(raw, spelled), _split_around(rewritten, spelled), strict=True
            ):
                if before != after:
                    edits.append(_make_edit(before, after))
            if not all(_is_unique(old, raw, alike) for old, _ in edits):
                return False
            if _apply_edits(raw, edits) != rewritten:
                return False
        blank = b"\r\n\r\n" if tail.endswith(b"\r\n\r\n") else b"\n\n"
        if not tail.endswith(blank):
            return False
        self._head, self._tail, self._edits = head, tail, edits
        self._edited_head, self._edited_tail = _apply_edits(head, edits), _apply_edits(tail, edits)
        self._has_volatile = passing is not None
        self._max_length = 2 * len(raw)
        self._separator = blank
        self._prefix = head[: passing.start()] if passing else head
        self._after_volatile = head[len(self._prefix) :] if len(self._prefix) < len(head) else None
        return True

    def matches(self, frames: bytes, start: int) -> bool:
        """Whether the frame at `start` begins like the one that was learned."""
        return bool(self._prefix) and frames.startswith(self._prefix, start)

    def match_run(
        self, frames: bytes, start: int, stop: int | None = None
    ) -> tuple[int, list[bytes]] | None:
        """Where a run of recognised frames ends that begins at `start` with one that fits, and
        their texts as JSON spells them; None where it cannot be told apart. `frames` are whole
        frames, of which those before `stop` are looked at."""
        rest = frames[start:stop]
        texts = self._leading_texts(_VOLATILE_FIELDS.sub(b"", rest) if self._has_volatile else rest)
        if not texts:
            return None
        self._attempts_left = _MAX_ATTEMPTS
        if self._has_volatile:
            *_, beyond = rest.split(self._separator, len(texts))
            return start + len(rest) - len(beyond), texts
        around = len(texts) * (len(self._head) + len(self._tail))
        return start + around + sum(map(len, texts)), texts

    def match_one(self, frames: bytes, start: int) -> tuple[int, list[bytes]] | None:
        """The same for the single frame at `start`."""
        return self.match_run(
            frames, start, frames.find(self._separator, start) + len(self._separator)
        )

    def match_chunk(self, chunk: bytes) -> bytes | None:
        """The text of a chunk that is one recognised frame and nothing else; None of any other, and
        where JSON spells the text in another way than it is."""
        start = self._prefix
        if not start or len(chunk) > self._max_length or not chunk.startswith(start):
            return None
        begin = len(start)
        if self._after_volatile is not None:
            passing = _VOLATILE_FIELDS.match(chunk, begin)
            if passing is None or not chunk.startswith(self._after_volatile, passing.end()):
                return None
            begin = passing.end() + len(self._after_volatile)
        end = chunk.find(b'"', begin)
        if end < 0 or not self._is_tail(chunk[end:]) or not _UNESCAPED.fullmatch(chunk, begin, end):
            return None
        self._attempts_left = _MAX_ATTEMPTS
        return chunk[begin:end]

    def _is_tail(self, rest: bytes) -> bool:
        """Whether this is what stands behind the text of one recognised frame."""
        if rest == self._tail or not self._has_volatile:
            return rest == self._tail
        alone = rest.find(self._separator) == len(rest) - len(self._separator)
        return alone and _VOLATILE_FIELDS.sub(b"", rest) == self._tail

    def apply(self, frames: bytes, start: int, end: int, texts: list[bytes]) -> bytes:
        """What leaves for a run that was recognised, and for its texts."""
        if not self._edits:
            return frames[start:end]
        if self._has_volatile:
            return _apply_edits(frames[start:end], self._edits)
        head, tail = self._edited_head, self._edited_tail
        return head + (tail + head).join(texts) + tail

    def _leading_texts(self, alike: bytes) -> list[bytes]:
        """The texts of the frames that are alike, up to the first one that is not."""
        # To split at what stands between two texts takes three times as long: the search for such a
        # long separator begins anew each time.
        blocks = alike.split(self._separator)
        head, tail = self._head, self._tail[: -len(self._separator)]
        begin, end = len(head), -len(tail)
        count = len(blocks)
        while count and not self._is_match(blocks[count - 1]):
            count -= 1
        texts = [block[begin:end] for block in blocks[:count]]
        if not alike.startswith(head + (self._tail + head).join(texts)):
            texts = [block[begin:end] for block in takewhile(self._is_match, blocks)]
        side_by_side = b"\n".join(texts)
        if (
            b'"' in side_by_side
            or side_by_side.count(b"\n") >= max(1, len(texts))
            or b"\\\n" in side_by_side
            or side_by_side.endswith(b"\\")
        ):
            return [*takewhile(_is_string_content, texts)]
        return texts

    def _is_match(self, block: bytes) -> bool:
        head, tail = self._head, self._tail[: -len(self._separator)]
        is_long = len(block) >= len(head) + len(tail)
        return is_long and block.startswith(head) and block.endswith(tail)


def parse_json_texts(json_texts: list[bytes]) -> list[str] | None:
    """Texts as JSON spells them, read; None where one of them is no text in JSON."""
    side_by_side = b"\n".join(json_texts)
    try:
        if _ESCAPED.search(side_by_side):
            return [loads(b'"%b"' % text) for text in json_texts]
        return side_by_side.decode().split("\n")
    except ValueError:
        return None


def count_json_characters(json_texts: list[bytes]) -> int:
    """How many these texts have, or about so many: to read them takes longer than an estimate is
    worth, and most escapes are two bytes for one character."""
    side_by_side = b"".join(json_texts)
    escapes = side_by_side.count(b"\\")
    if escapes and b"\\u" in side_by_side and (texts := parse_json_texts(json_texts)) is not None:
        return sum(map(len, texts))
    if side_by_side.isascii():
        return len(side_by_side) - escapes
    return len(side_by_side.decode("utf-8", "replace")) - escapes


def _is_string_content(spelled: bytes) -> bool:
    """Whether it is the inside of one JSON string: a line end would make it another frame, and a
    backslash at its end would swallow the quote behind it."""
    return not (b'"' in spelled or b"\n" in spelled or spelled.endswith(b"\\"))


def _split_around(frame: bytes, spelled: bytes) -> tuple[bytes, bytes]:
    before, _, after = frame.partition(spelled)
    return before + b'"', b'"' + after


def _make_edit(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """What has to be replaced by what, with as much before it as no text can contain."""
    shortest = min(len(before), len(after))
    start = _common_bytes(before[:shortest], after[:shortest], "big")
    rest = shortest - start
    same = _common_bytes(before[len(before) - rest :], after[len(after) - rest :], "little")
    for _ in range(_CONTEXT_QUOTES):
        start = max(before.rfind(b'"', 0, start), 0)
    start = max(start - 1, 0)
    return before[start : len(before) - same], after[start : len(after) - same]


def _common_bytes(one: bytes, other: bytes, order: Literal["big", "little"]) -> int:
    """How many bytes two texts of one length share from the front (`big`) or the back (`little`):
    as numbers they differ from the first byte on that is not the same."""
    difference = int.from_bytes(one, order) ^ int.from_bytes(other, order)
    return len(one) - (difference.bit_length() + 7) // 8


def _apply_edits(frames: bytes, edits: list[tuple[bytes, bytes]]) -> bytes:
    for old, new in edits:
        frames = frames.replace(old, new)
    return frames


def _is_unique(old: bytes, raw: bytes, alike: bytes) -> bool:
    """Whether it means this one place of the frame, and of all that are like it."""
    return (
        b"\n" not in old
        and bool(_BARE_QUOTE.search(old))
        and raw.count(old) == alike.count(old) == 1
    )
