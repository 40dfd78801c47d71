"""Exports: every column, and no formula for spreadsheets."""

from __future__ import annotations

import csv
import io

import orjson
import pytest

from gateway.admin.api.export import COLUMNS, ExportFormat, export_header, export_rows
from gateway.core.text import escape_unprintable
from gateway.store.records import ExchangeState
from tests.store.sample_rows import settlement


def row(**changes: object) -> dict[str, object]:
    return settlement(1, boot_id="b")._asdict() | changes


def table(*rows: dict[str, object]) -> list[dict[str, str]]:
    text = (export_header(ExportFormat.CSV) + export_rows(ExportFormat.CSV, rows)).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_table_has_every_column_and_what_is_absent_is_empty() -> None:
    (record,) = table(row(state=ExchangeState.ERROR, error_code=None, model='a,"b"\n\u202e'))
    assert tuple(record) == COLUMNS
    assert (record["state"], record["error_code"]) == ("error", "")
    assert record["model"] == 'a,"b"\\n\\u202e'
    assert record["started_at"] == str(row()["started_at"])


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_cells_are_no_formulas(text: str) -> None:
    (record,) = table(row(user_agent=text, reasoning_tokens=-1))
    assert record["user_agent"] == f"'{escape_unprintable(text)}"
    assert record["reasoning_tokens"] == "-1"


def test_a_json_object_on_each_line_is_as_it_is() -> None:
    rows = [row(user_agent="=1\n\x7f\x9b\u202e模型"), row()]
    text = export_header(ExportFormat.JSONL) + export_rows(ExportFormat.JSONL, rows)
    assert [orjson.loads(line) for line in text.splitlines()] == rows
    assert text.decode().replace("\n", "").isprintable()
