"""The journal's bytes: what an interrupted write leaves, and what no such write explains."""

from __future__ import annotations

import pytest

from gateway.store.records import LogEntry
from gateway.store.sqlite.journal_format import (
    BLOCK,
    InvalidJournal,
    decode,
    encode_frame,
    encode_head,
)
from tests.store.sample_rows import attempt, failed_attempt, intent, settlement

BOOT = "0123456789abcdef"
ENTRIES = [
    [LogEntry(intent(1)), LogEntry(intent(2, user_agent="\0GWF" * 2000))],
    [LogEntry(settlement(1), (failed_attempt(), attempt()))],
    [LogEntry(settlement(2, upstream_error="e" * 9000), (attempt(),)), LogEntry(intent(3))],
]
FRAMES = [encode_frame(BOOT, number, entries) for number, entries in enumerate(ENTRIES, 1)]
HEAD = encode_head(BOOT)


def numbers(image: bytes, after: int = 0) -> list[int]:
    return list(decode(image).after(after))


def test_entries_are_what_they_were() -> None:
    contents = decode(HEAD + b"".join(FRAMES) + bytes(BLOCK))
    assert contents.boot_id == BOOT
    assert contents.after(0) == dict(enumerate(ENTRIES, 1))
    assert contents.after(2) == {3: ENTRIES[2]}


def test_an_interrupted_write_leaves_what_was_before_it() -> None:
    """Whatever of its blocks the disk has: none, the first, the last, or a part of one; over
    zeros and over an older lap of the ring."""
    size = len(b"".join(FRAMES))
    other = [LogEntry(intent(7, user_agent="b" * 9000))]
    older = b"".join(encode_frame(BOOT, 90 + number, other) for number in range(9))
    for last, frame in enumerate(FRAMES):
        before = HEAD + b"".join(FRAMES[:last])
        places = range(0, len(frame), BLOCK)
        for start in (0, *places[1:], *(place + BLOCK // 2 for place in places)):
            torn = [frame[:start], bytes(start) + frame[start:]] if start else [b""]
            for each in torn:
                if each != frame and each.rstrip(b"\0") != frame.rstrip(b"\0"):
                    assert numbers((before + each).ljust(size + BLOCK, b"\0")) == [
                        *range(1, last + 1)
                    ]
        mixed = before + frame[:100] + older[len(before) - BLOCK + 100 :]
        assert set(decode(mixed).frames) & {1, 2, 3} == set(range(1, last + 1))


def test_a_frame_that_is_missing_before_others_is_damage() -> None:
    damaged = bytearray(HEAD + b"".join(FRAMES))
    damaged[BLOCK + len(FRAMES[0]) + 40] ^= 1
    assert numbers(bytes(damaged), after=2) == [3]
    for after in (0, 1):
        with pytest.raises(InvalidJournal, match="is damaged"):
            numbers(bytes(damaged), after)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        pytest.param(b"", "is no journal", id="empty"),
        pytest.param(b"SQLite format 3\0" + bytes(BLOCK), "is no journal", id="another format"),
        pytest.param(HEAD[:40] + b"x" + HEAD[41:], "or damaged", id="damaged head"),
    ],
)
def test_other_files_are_refused(image: bytes, reason: str) -> None:
    with pytest.raises(InvalidJournal, match=reason):
        decode(image)


def test_a_later_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gateway.store.sqlite.journal_format.FIELDS", [["id", "invented_later"], [], []]
    )
    with pytest.raises(InvalidJournal, match="later release"):
        decode(encode_head(BOOT))


def test_frames_of_another_boot_do_not_count() -> None:
    assert numbers(HEAD + encode_frame("another", 1, ENTRIES[0])) == []
