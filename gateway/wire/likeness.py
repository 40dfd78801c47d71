"""Recognises frames that repeat the one before but for their text. It must not know any format.

Most frames of a stream are such repeats. A frame that begins and ends with the same bytes as one
that was read as a single piece of text, and has no quote in between, can only be the next piece of
that text: it needs no parsing, and it is edited as the other was. A whole run of them is edited in
one go. Whatever is not recognised takes the ordinary way, so nothing depends on this but speed.
"""

from __future__ import annotations

import re
from typing import Final

_TRIES: Final = 4
"""Lessons without a recognition after which a stream is taken to vary elsewhere too."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9 ]{1,64}")


class Likeness:
    """One stream's model of a text frame: what stands before and after the text."""

    __slots__ = (
        "_gap",
        "_head",
        "_new_gap",
        "_new_head",
        "_new_tail",
        "_same",
        "_tail",
        "_tries",
    )

    def __init__(self) -> None:
        self._tries = _TRIES
        self._head = self._tail = self._gap = b""
        self._new_head = self._new_tail = self._new_gap = b""
        self._same = False

    def forget(self) -> None:
        """The part is over: the same bytes would now mean something else."""
        self._head = b""

    def learn(self, raw: bytes, rewritten: bytes, text: str) -> None:
        """`raw` was read as the piece `text` of the open part and left as `rewritten`.

        Learned only where the text stands once and is spelled plainly.
        """
        if not self._tries or not _PLAIN.fullmatch(text):
            return
        self._tries -= 1
        spelled = b'"%b"' % text.encode()
        if raw.count(spelled) != 1 or rewritten.count(spelled) != 1:
            return
        self._head, self._tail = _around(raw, spelled)
        self._new_head, self._new_tail = _around(rewritten, spelled)
        self._same = raw == rewritten
        self._gap = self._tail + self._head
        self._new_gap = self._new_tail + self._new_head

    def fits(self, frames: bytes, start: int) -> bool:
        """Whether the frame at `start` begins like the one that was learned."""
        return bool(self._head) and frames.startswith(self._head, start)

    def run(self, frames: bytes, start: int) -> tuple[int, bytes] | None:
        """Where a run of recognised frames ends that begins at `start` with one that fits, and
        what leaves for it; None where the run cannot be told apart as a whole. `frames` are whole
        frames."""
        return self._edit(frames, start, frames.rfind(self._tail, start))

    def one(self, frames: bytes, start: int) -> tuple[int, bytes] | None:
        """The same for the single frame at `start`."""
        return self._edit(frames, start, frames.find(self._tail, start + len(self._head) - 1))

    def _edit(self, frames: bytes, start: int, tail: int) -> tuple[int, bytes] | None:
        if tail < start + len(self._head):
            return None
        texts = frames[start + len(self._head) : tail].split(self._gap)
        # A quote or a line end in a text would make it another frame, and a backslash at its end
        # would swallow the quote behind it.
        side_by_side = b"\n".join(texts)
        if (
            b'"' in side_by_side
            or side_by_side.count(b"\n") != len(texts) - 1
            or b"\\\n" in side_by_side
            or texts[-1].endswith(b"\\")
        ):
            return None
        self._tries = _TRIES
        end = tail + len(self._tail)
        if self._same:
            return end, frames[start:end]
        return end, self._new_head + self._new_gap.join(texts) + self._new_tail


def _around(frame: bytes, spelled: bytes) -> tuple[bytes, bytes]:
    before, _, after = frame.partition(spelled)
    return before + b'"', b'"' + after
