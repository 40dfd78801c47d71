"""Reads usage exports of vendors, CSV or JSON, by the columns that `exports.yaml` names."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from io import BytesIO, TextIOWrapper
from itertools import chain
from pathlib import Path
from sys import intern
from typing import Any, Final, NamedTuple

import orjson
import yaml

from gateway.cli.errors import CommandRefused
from gateway.core.events import Usage
from gateway.core.limits import MICRO_PER_UNIT
from gateway.quota.reconciliation import Billed

_MAX_SIZE: Final = 256 * 2**20
"""Bytes of an export: more than a million requests."""
_DATE: Final = r"[-@]\d{4}-?\d{2}-?\d{2}(-v\d+)?(:\d+)?$"
"""What vendors add to a model's name."""
_COUNTS: Final = {
    "cache_read": "cache_read_tokens",
    "output": "output_tokens",
    "reasoning": "reasoning_tokens",
    "searches": "web_searches",
}

Row = Mapping[str, Any]


class Line(NamedTuple):
    """A row of an export; times are Unix microseconds, `end` excluded. `id` is that of the upstream
    request, and `start` equal to `end` then."""

    model: str
    start: int
    end: int
    id: str | None
    billed: Billed


class Export(NamedTuple):
    """`digits` are millionths of a dollar that the cost of a line leaves open."""

    name: str
    lines: Sequence[Line]
    digits: Fraction


@lru_cache(maxsize=1000)
def base_name(model: str, names: tuple[str, ...] = ()) -> str:
    """The name of a model without what vendors add to it."""
    for pattern in (*names, _DATE):
        model = re.sub(pattern, "", model)
    return model


def read_export(file: Path) -> Export:
    """Raises CommandRefused where the file is none, naming the row, or has no usage."""
    raw = _content_of(file)
    maps: dict[str, dict[str, Any]] = yaml.safe_load(
        (files(__package__) / "exports.yaml").read_text()
    )
    rows: Iterable[Row]
    try:
        if re.match(rb"\s*[{\[]", raw):
            rows = samples = list(_json_rows(raw.decode(errors="replace"), maps))
        else:
            text = TextIOWrapper(BytesIO(raw), "utf-8", errors="replace", newline="")
            rows = table = csv.DictReader(text)
            samples = [dict.fromkeys(table.fieldnames or ())]
        known = (name for name, columns in maps.items() if _has(columns["needs"], samples))
        if (name := next(known, None)) is None:
            names = ", ".join(maps)
            raise CommandRefused(f"{file} has the columns of no known export: {names}.")
        export = _export(file, name, rows, maps[name])
    except (orjson.JSONDecodeError, csv.Error) as error:
        raise CommandRefused(f"{file} is neither CSV nor JSON: {error}") from None
    if not export.lines:
        raise CommandRefused(f"{file} has no rows with usage.")
    return export


def _has(needs: Sequence[str], rows: Iterable[Row]) -> bool:
    return any(all(need in row for need in needs) for row in rows)


def _export(file: Path, name: str, rows: Iterable[Row], columns: Mapping[str, Any]) -> Export:
    """Raises CommandRefused and csv.Error."""
    lines, decimals = [], 0
    for number, row in enumerate(rows, 1):
        try:
            line = _line(row, columns)
        except (ValueError, InvalidOperation) as error:
            raise CommandRefused(f"{file}, row {number}: {error}") from None
        if line is not None:
            lines.append(line)
            cost = str(row.get(columns.get("cost", "")) or "")
            decimals = max(decimals, len(cost.partition(".")[2]))
    return Export(name, lines, Fraction(MICRO_PER_UNIT, 2 * 10**decimals))


def _content_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        raw = opened.read(_MAX_SIZE + 1)
    if len(raw) > _MAX_SIZE:
        raise CommandRefused(f"{file} is larger than {_MAX_SIZE >> 20} MiB: divide it.")
    return raw.removeprefix(codecs.BOM_UTF8)


def _json_rows(text: str, maps: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Rows of a list, of objects in the lines of a text, or of the lists that a map names."""
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError:
        content = [orjson.loads(line) for line in text.split("\n") if line.strip()]
    objects = content if isinstance(content, list) else [content]
    paths = [path for columns in maps.values() if (path := columns.get("rows"))]
    for each in objects:
        path = next((path for path in paths if path[0] in each), ())
        yield from map(_flat, _inner(each, path))


def _inner(outer: Row, path: Sequence[str]) -> Iterator[Row]:
    if not path:
        yield outer
        return
    around = {name: value for name, value in outer.items() if name != path[0]}
    for each in outer.get(path[0]) or ():
        yield from _inner(around | each, path[1:])


def _flat(row: Row, prefix: str = "") -> dict[str, Any]:
    """Fields of objects in it by names with dots."""
    nested = (
        _flat(value, f"{prefix}{name}.").items()
        if isinstance(value, dict)
        else ((f"{prefix}{name}", value),)
        for name, value in row.items()
    )
    return dict(chain.from_iterable(nested))


def _line(row: Row, columns: Mapping[str, Any]) -> Line | None:
    """None for a row without a model, such as a sum. Raises ValueError and InvalidOperation."""

    def cell(field: str) -> str:
        value = row.get(columns.get(field, ""))
        return "" if value is None else str(value).strip()

    def count(field: str) -> int:
        return int(Decimal(cell(field) or 0))

    if not cell("model") or not cell("start"):
        return None
    id, start = cell("id") or None, _time(cell("start"))
    end = _time(cell("end")) if cell("end") else start + columns.get("span", 3600) * 1_000_000
    written_1h = count("cache_write_1h")
    usage = Usage(
        cache_write_tokens=count("cache_write") + written_1h,
        cache_write_1h_tokens=written_1h,
        **{name: count(field) for field, name in _COUNTS.items()},
    )
    fresh = count("fresh") + usage.cache_read_tokens + usage.cache_write_tokens
    input_tokens = count("input") if "input" in columns else fresh
    usage += Usage(input_tokens=input_tokens)
    tier = (
        "batch" if cell("batch").lower() in ("true", "1") else intern(cell("tier").lower()) or None
    )
    cost = Fraction(Decimal(cell("cost"))) * MICRO_PER_UNIT if cell("cost") else None
    requests = 1 if id else count("requests") if cell("requests") else None
    model = base_name(cell("model"), tuple(columns.get("names", ())))
    return Line(intern(model), start, start if id else end, id, Billed(usage, requests, tier, cost))


def _time(text: str) -> int:
    """Unix microseconds of Unix seconds, or of a time or date, in UTC unless it says otherwise."""
    if text.replace(".", "").isdecimal():
        return int(Decimal(text) * 1_000_000)
    time = datetime.fromisoformat(text.removesuffix(" UTC").replace("Z", "+00:00"))
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)
