"""The page of pitfalls keeps its word: every row names cases, and every case that it names exists.

What the cases show is the business of the tests that run them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import FIXTURES, ROOT

PAGE = (FIXTURES / "PITFALLS.md").read_text()


def rows() -> Iterator[tuple[int, list[str]]]:
    """Each row's number and the cases in its last cell."""
    for line in PAGE.splitlines():
        number, _, cases = (line.strip("|").split("|") + [""] * 3)[:3]
        if line.startswith("|") and number.strip().isdigit():
            yield int(number), re.findall(r"`([^`]+)`", cases)


ROWS = list(rows())
CASES = sorted({case for _, cases in ROWS for case in cases})


@cache
def functions(path: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.parse(path.read_bytes(), path).body
    return frozenset(node.name for node in nodes if isinstance(node, kinds))


def test_both_lists_are_complete() -> None:
    assert [number for number, _ in ROWS] == [*range(1, 46), *range(1, 41)]


def test_every_row_names_a_case() -> None:
    assert [number for number, cases in ROWS if not cases] == []


@pytest.mark.parametrize("case", CASES)
def test_every_case_exists(case: str) -> None:
    file, _, test = case.partition("::")
    if test:
        assert test.startswith("test_")
        assert test in functions(ROOT / file)
    else:
        assert re.fullmatch(r"(streams|prompts)/\w+|quirks/(chat|messages|responses)/\w+", case)
        assert list((FIXTURES / case).glob("*.json"))


def test_every_path_exists() -> None:
    """Also where the page only tells of it."""
    paths = re.findall(r"`(tests/[\w/.]+)", PAGE)
    assert [path for path in paths if not (ROOT / path).exists()] == []
