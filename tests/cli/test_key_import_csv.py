"""CSV files of keys: every column, and every invalid cell."""

from __future__ import annotations

from io import StringIO

import pytest

from gateway.cli.key_import import COLUMNS, CellError, column_of, parse_key_csv

NOW = 1_790_000_000_000_000
DAY = 86_400_000_000
SECRET = "an-old-key-of-ours-4471"


def read(*lines: str) -> tuple[list[dict[str, object]], list[tuple[int, str]]]:
    rows, errors = parse_key_csv(StringIO("".join(f"{line}\n" for line in lines)), NOW)
    return [row.fields for row in rows], [(error.line, error.column) for error in errors]


def test_every_column() -> None:
    rows, errors = read(
        ",".join(COLUMNS),
        "alice,team,30d,for all,beta-*;family:alpha x,10.0.0.1 ::1,codex; claude cli/1,"
        "end-user=x-mail;session,"
        f"600,100k,2,5M,1,0.5,none,,$50,2.50,none,,,5,0.1,,0,yes,yes,{SECRET}",
    )
    assert errors == []
    assert rows == [
        {
            "name": "alice",
            "group": "team",
            "expires_at": NOW + 30 * DAY,
            "note": "for all",
            "models": ["beta-*", "family:alpha", "x"],
            "addresses": ["10.0.0.1", "::1"],
            "user_agents": ["codex", "claude cli/1"],
            "trust": ["end-user=x-mail", "session"],
            "limits": {
                "requests_per_minute": 600,
                "tokens_per_minute": 100_000,
                "concurrent": 2,
                "budget": 5_000_000_000_000,
                "budget_5h": 1_000_000,
                "budget_day": 500_000,
                "budget_usd": 50_000_000,
                "budget_usd_5h": 2_500_000,
            },
            "budget_day_per_user": 5_000_000,
            "budget_usd_day_per_user": 100_000,
            "budget_usd_day_per_session": 0,
            "probe": True,
            "cost_in_usage": True,
            "key": SECRET,
        }
    ]


def test_empty_and_missing_cells_are_omitted() -> None:
    rows, errors = read(
        " name , expires,rpm,models", "alice,,,", "bob", "", ",,,", "none,never,none"
    )
    assert errors == []
    assert rows == [{"name": name, "limits": {}} for name in ("alice", "bob", "none")]


def test_every_invalid_cell_is_reported_and_the_others_are_parsed() -> None:
    rows, errors = read(
        "name,expires,rpm,budget,probe,note",
        "alice,soon,many,5X,perhaps,fine",
        '"bob","1d","1","1","no","two\nlines"',
        "carol,,x,,,",
        "dora,,,,,,,",
    )
    assert errors == [
        (2, "expires"),
        (2, "rpm"),
        (2, "budget"),
        (2, "probe"),
        (5, "rpm"),
        (6, ""),
    ], "a line is where its row begins"
    assert rows[0] == {"name": "alice", "note": "fine", "limits": {}}
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("titles", "wrong"),
    [
        ("group", ["name"]),
        ("name,colour,name", ["name", "colour"]),
        ("name;group", ["column 1", "name"]),
        ("name,,Colour,my note", ["column 2", "column 3", "my note"]),
        ("", ["name"]),
    ],
)
def test_only_errors_of_an_invalid_header_are_reported(titles: str, wrong: list[str]) -> None:
    rows, errors = read(titles, "alice,x,y,z")
    assert (rows, errors) == ([], [(1, column) for column in wrong])


def test_errors_of_a_file_without_a_header_repeat_no_secret() -> None:
    first = f"bob,team,{SECRET},sk-Abc,{'a' * 21},carol@example.org"
    _, errors = parse_key_csv([f"{first}\n"], NOW)
    columns = ["bob", "team", "column 3", "column 4", "column 5", "column 6", "name"]
    assert [error.column for error in errors] == columns
    messages = "\n".join(map(str, errors))
    assert all("the first line must be a header" in str(error) for error in errors)
    for secret in (SECRET, "sk-Abc", "a" * 21, "carol@"):
        assert secret not in messages


def test_a_key_in_two_lines_is_reported_once() -> None:
    rows, errors = parse_key_csv(["name,key\n", f"a,{SECRET}\n", f"b,{SECRET}\n"], NOW)
    assert errors == [CellError(3, "key", "is also the key of line 2")]
    assert [row.fields.get("key") for row in rows] == [SECRET, None]
    assert SECRET not in repr(rows)


def test_an_invalid_line() -> None:
    rows, errors = parse_key_csv(["name\n", '"alice" x\n'], NOW)
    assert rows == []
    assert str(errors[0]).startswith("line 2: is not valid CSV: ")


def test_an_empty_file() -> None:
    assert read() == ([], [(1, "name")])


@pytest.mark.parametrize(
    ("path", "column"),
    [
        ("name", "name"),
        ("expires_at", "expires"),
        ("limits.requests_per_minute", "rpm"),
        ("limits", "limits"),
        ("addresses.3", "addresses"),
        ("something.else", "something.else"),
    ],
)
def test_the_column_of_a_field(path: str, column: str) -> None:
    assert column_of(path) == column
