from __future__ import annotations

from pathlib import Path

from tests.checks.history import KEPT, add_check, often_repeated, read_checks


def add(file: Path, *repeated: str) -> None:
    add_check(file, commit="abc", full=False, seconds={"tests": 1.5}, repeated=repeated)


def test_tests_that_are_repeated_often_are_named(tmp_path: Path) -> None:
    file = tmp_path / "new" / "checks.jsonl"
    assert read_checks(file) == []
    add(file, "a", "b")
    add(file)
    add(file, "b", "a", "b")
    add(file, "b", "c")
    assert often_repeated(read_checks(file)) == [("b", 3), ("a", 2)]


def test_old_checks_and_damaged_lines_are_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "checks.jsonl"
    add(file, "old")
    file.write_bytes(file.read_bytes() + b'{"repea\n[]\n')
    for _ in range(KEPT):
        add(file, "new")
    assert often_repeated(read_checks(file)) == [("new", KEPT)]
