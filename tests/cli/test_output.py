"""Tables of commands on terminals and in pipes."""

from __future__ import annotations

import sys

import click
import pytest

from gateway.cli.output import print_table

RECORD = {
    **{"name": "a-name-of-twenty-chars", "id": "tok_926c069db8408916"},
    **{"model": "a-model-of-22-characters", "requests": 1234, "state": "active"},
}
COLUMNS = {
    **{"Name": "name", "Id": "id", "Model": "model"},
    **{"Requests": "requests", "State": "state"},
}


@pytest.mark.parametrize(
    ("columns", "cut"),
    [
        (None, ()),  # a pipe
        (200, ()),
        (70, ("a-name-of-twe…", "a-model-of-22…")),
        (40, ("a-name-…", "a-model…")),  # it does not fit: the terminal wraps
    ],
)
def test_tables_fit_the_terminal_and_keep_ids_and_numbers(
    columns: int | None,
    cut: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table([RECORD], COLUMNS)
    head, line = click.unstyle(capsys.readouterr().out).splitlines()
    assert head.split() == list(COLUMNS)
    expected = cut or (RECORD["name"], RECORD["model"])
    assert line.split() == [expected[0], RECORD["id"], expected[1], "1", "234", "active"]
    if columns is not None and columns > 40:
        assert max(len(line), len(head)) <= columns
