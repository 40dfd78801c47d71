"""`gateway usage`: output, exit codes and errors."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import usage
from gateway.cli.options import now_us
from gateway.cli.output import format_time
from gateway.store.log.usage import Dimension
from gateway.store.records import USAGE_COUNTS
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.cli.cli_runner import CommandRunner, admin_gateway
from tests.store.sample_rows import intent, settled
from tests.support.cases import in_one_test

HOUR, DAY = 3_600_000_000, 86_400_000_000
FIGURES = {"input_tokens": 1000, "cache_read_tokens": 400, "output_tokens": 70}


def lines(text: str) -> list[list[str]]:
    """The cells of a table's lines, with plain blanks in numbers."""
    return [
        [cell.strip().replace("\u202f", " ") for cell in line.split("  ") if cell.strip()]
        for line in text.splitlines()
    ]


@pytest.fixture
def key_ids(shell: CommandRunner) -> list[str]:
    """Alice has used two models now, Bob one of them 40 days ago; one count is an estimate."""
    key_ids = [str(shell.create_key(name)["id"]) for name in ("alice", "bob")]
    alice, bob = key_ids
    estimate = {"cost_micro": 2_500_000_000, "usage_source": "estimated"}
    spent = [
        (alice, "beta-5.4", now_us(), {"cost_micro": 7_500_000_000, "usd_micro": 1_250_000}),
        (alice, "alpha-x", now_us(), estimate),
        (bob, "alpha-x", now_us() - 40 * DAY, {"cost_micro": 10**12, "state": "error"}),
    ]
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            for number, (token_id, model, at, changes) in enumerate(spent):
                opened = intent(number, token_id, catalog_model=model, started_at=at)
                opened = opened._replace(id=f"req_{at:014x}{number:010x}")
                gateway.recorder.record_intent(opened)
                gateway.recorder.record_settlement(settled(opened, **FIGURES | changes))

        gateway.do(work)
    return key_ids


def test_the_dimensions_are_those_of_the_database() -> None:
    assert tuple(name.replace("_", "-") for name in Dimension) == usage.DIMENSIONS


def test_by_what_requests_state_of_themselves(shell: CommandRunner) -> None:
    key_id, now = str(shell.create_key("alice")["id"]), now_us()
    stated = [{"end_user": "ann", "tag": "t"}, {"end_user": "ann"}, {}]
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            for number, fields in enumerate(stated):
                at = now - number
                opened = intent(number, key_id, id=f"req_{at:014x}{number:010x}", started_at=at)
                opened = opened._replace(**fields)
                gateway.recorder.record_intent(opened)
                gateway.recorder.record_settlement(settled(opened, **FIGURES))

        gateway.do(work)
    since = ("--since", "2d")
    titles, *rows = lines(shell("usage", "--by", "end-user,tag", *since).stdout)
    assert titles[0] == "End user, tag"
    assert {tuple(row[:2]) for row in rows[:-1]} == {("ann", "2"), ("t", "1"), ("-", "1")}
    assert rows[-1][:2] == ["Total", "3"]
    found = shell.items("usage", "--by", "key", "--end-user", "ann", *since)
    assert [row["requests"] for row in found] == [2]
    table = list(csv.DictReader(shell("usage", "--by", "tag", "--csv", *since).stdout.splitlines()))
    assert {row["tag"]: row["requests"] for row in table} == {"t": "1", "": "2"}
    assert len(shell.items("logs", "list", "--end-user", "ann")) == 2
    assert len(shell.items("logs", "list", "--end-user", "ann", "--tag", "t")) == 1


def test_this_month_by_key(shell: CommandRunner, key_ids: list[str]) -> None:
    result = shell("usage")
    assert result.exit_code == 0
    titles, row, total = lines(result.stdout)
    assert titles == [
        "Key",
        "Requests",
        "Errors",
        "Input",
        "Cached",
        "Output",
        "Units",
        "USD",
        "Share",
    ]
    figures = ["2", "0", "2 000", "800", "140", "~10 000", "~$1.25"]
    assert row == [f"alice ({key_ids[0]})", *figures, f"{'█' * 20} 100 %"]
    assert total == ["Total", *figures]
    assert result.stderr.startswith("Since ")


def test_traffic_by_model(shell: CommandRunner, key_ids: list[str]) -> None:
    titles, *rows = lines(shell("usage", "traffic", "--since", "60d").stdout)
    assert titles == [
        *("Model", "Requests", "Failed", "Left", "Refused", "Retries", "First event"),
        *("Whole reply", "Tokens/s", "Units", "USD"),
    ]
    assert [row[:6] for row in rows] == [
        ["beta-5.4", "1", "0", "0", "0", "0"],
        ["alpha-x", "2", "1", "0", "0", "0"],
    ]
    assert " / " in rows[0][6]
    found = shell.items("usage", "traffic", "--by", "channel", "--step", "hour", "--since", "3d")
    assert [(row["name"], row["outcomes"]["ok"]) for row in found] == [("main", 2)]
    refused = shell("usage", "traffic", "--step", "5m", "--since", "60d")
    assert refused.exit_code == 1
    assert "up to 1000 steps" in refused.stderr


def test_usage_by_channel(shell: CommandRunner, key_ids: list[str]) -> None:
    _, row, total = lines(shell("usage", "--by", "channel", "--since", "60d").stdout)
    assert (row[:2], total[:2]) == (["main", "3"], ["Total", "3"])
    assert len(lines(shell("usage", "--channel", "main", "--since", "60d").stdout)) == 4


def test_web_searches_have_a_column(shell: CommandRunner, key_ids: list[str]) -> None:
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            opened = intent(9, key_ids[0], catalog_model="beta-5.4", started_at=now_us())
            gateway.recorder.record_intent(opened)
            gateway.recorder.record_settlement(settled(opened, **FIGURES, web_searches=3))

        gateway.do(work)
    titles, row, total = lines(shell("usage").stdout)
    at = titles.index("Searches")
    assert (titles[at - 1], row[at], total[at]) == ("Output", "3", "3")


def test_shares_and_order(shell: CommandRunner, key_ids: list[str]) -> None:
    _, *rows, total = lines(shell("usage", "--by", "model").stdout)
    assert [(row[0], row[6:]) for row in rows] == [
        ("beta-5.4", ["7 500", "$1.25", f"{'█' * 20} 100 %"]),
        ("alpha-x", ["~2 500", "~$0.00", "0 %"]),
    ]
    assert total[-2:] == ["~10 000", "~$1.25"]


def test_shares_are_of_the_units_where_nothing_has_a_price(
    shell: CommandRunner, key_ids: list[str]
) -> None:
    _, *rows, _ = lines(shell("usage", "--since", "60d").stdout)
    assert [row[-2:] for row in rows] == [["~$1.25", f"{'█' * 20} 100 %"], ["$0.00", "0 %"]]
    _, row, _ = lines(shell("usage", "--since", "60d", "--key", "bob").stdout)
    assert row[-2:] == ["1 000 000", f"{'█' * 20} 100 %"]


@pytest.mark.parametrize("by", [("--by", "key,model"), ("--by", "key", "--by", " model,key")])
def test_several_dimensions_are_levels_with_subtotals(
    shell: CommandRunner, key_ids: list[str], by: tuple[str, ...]
) -> None:
    text = shell("usage", *by, "--since", "60d").stdout
    titles, *rows = lines(text)
    assert titles[0] == "Key, model"
    alice, bob = key_ids
    assert [(row[0], row[1], row[6]) for row in rows] == [
        (f"alice ({alice})", "2", "~10 000"),
        ("beta-5.4", "1", "7 500"),
        ("alpha-x", "1", "~2 500"),
        (f"bob ({bob})", "1", "1 000 000"),
        ("alpha-x", "1", "1 000 000"),
        ("Total", "3", "~1 010 000"),
    ]
    assert [line.startswith("  ") for line in text.splitlines()[1:-1]] == [
        *(False, True, True),
        *(False, True),
    ]


def test_levels_of_time_are_in_their_order(shell: CommandRunner, key_ids: list[str]) -> None:
    report = shell.json("usage", "--by", "day,key,model", "--since", "60d")
    assert report["by"] == ["day", "key", "model"]
    _, *rows, _ = lines(shell("usage", "--by", "day,key,model", "--since", "60d").stdout)
    days = sorted({row["day"] for row in report["items"]})
    assert [row[0] for row in rows if row[0] in days] == days
    assert [row[0].split(" ")[0] for row in rows] == [
        *(days[0], "bob", "alpha-x"),
        *(days[1], "alice", "beta-5.4", "alpha-x"),
    ]


def test_since_and_filters(shell: CommandRunner, key_ids: list[str]) -> None:
    def costs(*arguments: str) -> list[int]:
        return [row["cost_micro"] for row in shell.items("usage", *arguments)]

    assert costs("--since", "60d") == [10**10, 10**12]  # only the first has a price in dollars
    assert costs("--since", "60d", "--key", "alice") == [10**10]
    assert costs("--since", "60d", "--model", "alpha-x", "--by", "group") == [1_002_500_000_000]
    assert costs("--since", "60d", "--until", "20d") == [10**12]
    assert costs("--group", "nobody") == []


def test_json_output(shell: CommandRunner, key_ids: list[str]) -> None:
    report = shell.json("usage", "--by", "day", "--by", "key")
    assert set(report) == {"since", "until", "by", "items", "next", "total"}
    assert (report["by"], report["until"]) == (["day", "key"], None)
    (row,) = report["items"]
    assert set(row) == {"day", "key", *USAGE_COUNTS}
    assert report["total"] == {name: row[name] for name in USAGE_COUNTS}
    assert (row["requests"], row["estimated"], row["cost_micro"]) == (2, 1, 10**10)


def test_csv_output(shell: CommandRunner, key_ids: list[str]) -> None:
    text = shell("usage", "--by", "key", "--by", "hour", "--since", "60d", "--csv").stdout
    rows: list[dict[str, Any]] = list(csv.DictReader(text.splitlines()))
    counts = [name for name in USAGE_COUNTS if not name.endswith("_micro")]
    assert list(rows[0]) == ["key", "name", "hour", *counts, "units", "usd"]
    assert {(row["key"], row["name"]) for row in rows} == set(
        zip(key_ids, ("alice", "bob"), strict=True)
    )
    assert [(row["units"], row["usd"]) for row in rows] == [("1000000", "0"), ("10000", "1.25")]
    assert rows[1]["hour"].endswith(":00Z")
    assert rows[1]["input_tokens"] == "2000"


def test_a_name_that_looks_like_a_formula_is_escaped(
    shell: CommandRunner, key_ids: list[str]
) -> None:
    with closing(sqlite3.connect(shell.state_dir / DATABASE_NAME)) as ledger:
        ledger.execute("UPDATE tokens SET name = '=1+1' WHERE id = ?", (key_ids[0],))
        ledger.commit()
    (row,) = csv.DictReader(shell("usage", "--csv").stdout.splitlines())
    assert (row["key"], row["name"]) == (key_ids[0], "'=1+1")


def test_the_span_is_in_whole_hours(shell: CommandRunner, key_ids: list[str]) -> None:
    report = shell.json("usage", "--since", "2026-11-01T10:59", "--until", "2026-11-02 11:30")
    assert (report["since"] % HOUR, report["until"] % HOUR) == (0, 0)
    assert report["until"] - report["since"] == 25 * HOUR
    result = shell("usage", "--since", "2026-11-01T10:59", "--until", "2026-11-02 11:30")
    assert (
        result.stderr
        == f"Since {format_time(report['since'])} and before {format_time(report['until'])}.\n"
    )


def test_prices_next_to_units(shell: CommandRunner, key_ids: list[str], tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text("money: {unit_price: 0.002, currency: EUR}\n")
    titles, row, total = lines(shell("usage", "--config", str(file)).stdout)
    assert titles[-2:] == ["Price", "Share"]
    assert row[7:9] == ["~$1.25", "20.00 EUR"]
    assert total[8] == "20.00 EUR"


def test_no_usage(shell: CommandRunner) -> None:
    shell.create_key("alice")
    assert [line[0] for line in lines(shell("usage", "--by", "model").stdout)] == ["Model", "Total"]
    assert shell.json("usage")["total"] == dict.fromkeys(USAGE_COUNTS, 0)


@in_one_test(
    ("arguments", "code", "message"),
    [
        (("--by", "colour"), 2, "'colour' is not one of key, group"),
        (("--since", "soon"), 2, "must be a date such as 2026-12-31"),
        (("--since", "1d", "--until", "2d"), 2, "must be at least one hour after"),
        (
            ("--since", "2026-11-01T10:01", "--until", "2026-11-01T10:59"),
            2,
            "must be at least one hour after",
        ),
        (("--key", "carol"), 1, "No key has the id or name carol."),
        (("--csv", "--json"), 2, "Use either"),
    ],
)
def test_refusals(
    shell: CommandRunner, arguments: tuple[str, ...], code: int, message: str
) -> None:
    shell.state_dir.mkdir(exist_ok=True)
    result = shell("usage", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_refused_requests(shell: CommandRunner, key_ids: list[str]) -> None:
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            for number, key_id in enumerate((*key_ids, key_ids[0])):
                at = now_us() - 60 * 10**6
                opened = intent(number, key_id, id=f"req_{at:014x}{number:010x}", started_at=at)
                refused = settled(opened, state="rejected", error_code="rate_limit_exceeded")
                gateway.recorder.record_settlement(refused)

        gateway.do(work)
    titles, *rows = lines(shell("usage", "refusals").stdout)
    assert titles == ["Key", "Reason", "Requests", "Last", "Id of the last"]
    assert [row[:3] for row in rows] == [
        ["alice", "rate_limit_exceeded", "2"],
        ["bob", "rate_limit_exceeded", "1"],
    ]
    (row,) = shell.items("usage", "refusals", "--key", "bob", "--since", "1d")
    assert (row["token_id"], row["requests"]) == (key_ids[1], 1)
