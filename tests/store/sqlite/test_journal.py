"""The journal's file: a ring whose blocks are used again once the database has their entries."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from gateway.store.records import LogEntry
from gateway.store.sqlite.journal import Journal
from gateway.store.sqlite.journal_format import BLOCK, BLOCKS, decode
from tests.store.sample_rows import intent

BOOT = "0123456789abcdef"


def test_the_ring_has_what_was_not_released(tmp_path: Path) -> None:
    path, random = tmp_path / "db-requests", Random(7)
    journal = Journal(path, BOOT)
    assert path.stat().st_size == BLOCK * BLOCKS
    assert path.stat().st_mode & 0o777 == 0o600
    written = released = entries = full = 0
    ends: dict[int, int] = {0: 0}
    for step in range(1500):
        count = random.randint(1, 4)
        size = random.choice((100, 5000, 40_000))
        if not journal.append([LogEntry(intent(step, user_agent="a" * size))] * count):
            full += 1  # the database gets everything
            released = journal.covered(left=0)
            journal.release(released)
            assert decode(path.read_bytes()).after(released) == {}
            written, entries = released, ends[max(ends)]
            ends = {written: entries}
            continue
        written += 1
        entries += count
        ends[written] = entries
        if step % 100 == 0 and written - released > 3:
            left = random.randint(1, entries - ends[released])
            expected = max(number for number, end in ends.items() if end <= entries - left)
            assert journal.covered(left) in ({0, expected} if expected == released else {expected})
            released = expected
            journal.release(expected)
        if step % 50 == 0:
            assert list(decode(path.read_bytes()).after(released)) == [
                *range(released + 1, written + 1)
            ]
    assert full
    journal.close()
    assert path.exists()


def test_a_journal_without_entries_is_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "db-requests", BOOT)
    journal.append([LogEntry(intent(1))])
    journal.release(journal.covered(left=0))
    journal.close()
    assert not list(tmp_path.iterdir())


def test_texts_that_cannot_be_encoded_are_repaired(tmp_path: Path) -> None:
    path = tmp_path / "db-requests"
    Journal(path, BOOT).append([LogEntry(intent(1, user_agent="a\udcff", bytes_in=2**70))])
    ((entry,),) = decode(path.read_bytes()).after(0).values()
    assert (entry.row.user_agent, entry.row.bytes_in) == ("a?", 2**53)


def test_a_journal_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "db-requests"
    path.write_bytes(b"what another start has to recover")
    with pytest.raises(FileExistsError):
        Journal(path, BOOT)
    assert path.read_bytes() == b"what another start has to recover"
    assert [each.name for each in tmp_path.iterdir()] == ["db-requests"]
