"""Snapshots of the configuration: what is kept, for how long, and who can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.admin import config_history
from gateway.admin.config_history import ConfigHistory, unified_diff
from gateway.admin.errors import UnknownSnapshot
from tests.admin.config_follower import follow_config, messages_channel
from tests.resilience.faults.upstream import fault_upstream


def add(history: ConfigHistory, text: str) -> int | None:
    made = history.add(text.encode(), "f", at=1, actor="me", cause="reload", changes="changed a")
    return None if made is None else made.number


def test_each_text_is_kept_once_in_a_row_and_known_again(tmp_path: Path) -> None:
    history = ConfigHistory(tmp_path)
    assert [add(history, text) for text in ("a: 1\n", "a: 1\n", "a: 2\n", "a: 1\n")] == [
        1,
        None,
        2,
        3,
    ]
    assert [(each.number, each.same_as) for each in history.snapshots()] == [
        (3, 1),
        (2, None),
        (1, None),
    ]
    assert history.read(2) == b"a: 2\n"


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    history = ConfigHistory(tmp_path)
    add(history, "a: 1\n")
    modes = [path.stat().st_mode & 0o777 for path in (history.folder, *history.folder.iterdir())]
    assert modes == [0o700, 0o600]


def test_it_is_bounded_by_number_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_history, "MAX_SNAPSHOTS", 3)
    history = ConfigHistory(tmp_path)
    for n in range(5):
        add(history, f"a: {n}\n")
    assert [each.number for each in history.snapshots()] == [5, 4, 3]
    monkeypatch.setattr(config_history, "MAX_TOTAL", 1)
    assert add(history, "b: 1\n") == 6
    assert [each.number for each in history.snapshots()] == [6]


def test_a_damaged_snapshot_is_not_restored(tmp_path: Path) -> None:
    history = ConfigHistory(tmp_path)
    add(history, "a: 1\n")
    file = history.folder / "000001.yaml"
    file.write_bytes(file.read_bytes() + b"b: 2\n")
    for number in (1, 2):
        with pytest.raises(UnknownSnapshot):
            history.read(number)


def test_a_difference_names_both_sides_and_long_texts_are_refused() -> None:
    assert unified_diff("a\nb\n", "a\nc\n", "old", "new").splitlines() == [
        *("--- old", "+++ new", "@@ -1,2 +1,2 @@", " a", "-b", "+c")
    ]
    assert unified_diff("a\n", "a\n", "old", "new") == ""
    assert "Too long" in unified_diff("a\n" * 30_000, "", "old", "new")


async def test_a_gateway_keeps_what_it_accepts(tmp_path: Path) -> None:
    async with (
        fault_upstream() as upstream,
        follow_config(tmp_path, messages_channel(upstream, "one")) as it,
    ):
        await it.reload(messages_channel(upstream, "two"))
        it.write("channels: 7\n")
        await it.reload(messages_channel(upstream, "two"))
        history = ConfigHistory(tmp_path / "state")
        assert [(each.cause, each.changes, each.actor) for each in history.snapshots()] == [
            (
                "reload",
                "added account messages-main/two; removed account messages-main/one",
                "gateway",
            ),
            ("start", "", "gateway"),
        ]
        assert history.read(2) == it.file.read_bytes()


async def test_a_history_that_cannot_be_written_fails_no_reload(tmp_path: Path) -> None:
    async with (
        fault_upstream() as upstream,
        follow_config(tmp_path, messages_channel(upstream, "one")) as it,
    ):
        folder = ConfigHistory(tmp_path / "state").folder
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.touch()
        result = await it.reload(messages_channel(upstream, "two"))
        assert "account messages-main/two" in result.changes.added
