"""`gateway logs`: output, exit codes and errors."""

from __future__ import annotations

import csv
import io
import re
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.store.log.pages import first_id
from gateway.store.records import ExchangeState, LogEntry, RequestRow, SearchRow, started_us
from tests.cli.cli_runner import AdminGateway, CommandRunner, admin_gateway
from tests.store.sample_rows import (
    START,
    attempt,
    failed_attempt,
    intent,
    request_id,
    settlement,
)
from tests.support.cases import in_one_test
from tests.support.slow_search import slow_down

FAILED = {
    "state": ExchangeState.ERROR,
    "status": 503,
    "error_code": "server_is_overloaded",
    "upstream_status": 529,
    "upstream_error": "no \x1b[31m[bold]room\u202e",
    "dropped": "seed, top_k",
}


def record(gateway: AdminGateway, *rows: RequestRow | LogEntry) -> None:
    """Writes exchanges that run, and waits for their commits, and exchanges that ended."""

    async def work() -> None:
        for row in rows:
            entry = row if isinstance(row, LogEntry) else LogEntry(row)
            if entry.is_intent:
                await gateway.recorder.record_intent(entry.row)
            else:
                gateway.recorder.record_settlement(*entry)

    gateway.do(work)


@pytest.fixture
def token_id(shell: CommandRunner) -> str:
    """Three rows of alice's: fine, failed upstream, and one that was running at the end."""
    created_id = shell.create_key("alice")["id"]
    with admin_gateway(shell.state_dir) as gateway:
        record(
            gateway,
            settlement(1, created_id),
            settlement(2, created_id, model="beta-5.4", **FAILED),
            intent(3, created_id),
        )
    return str(created_id)


def lines_of(lines: list[str]) -> list[str]:
    """The sentences of a story, without the lines that tie them together."""
    return [line.lstrip("│├└─` |+-\xa0") for line in lines]


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


@in_one_test(
    ("filters", "numbers"),
    [
        ((), [3, 2, 1]),
        (("--limit", "2"), [3, 2]),
        (("--before", request_id(3)), [2, 1]),
        (("--key", "alice", "--state", "ok"), [1]),
        (("--model", "beta-5.4"), [2]),
        (("--status", "503"), [2]),
        (("--state", "running"), [3]),
        (("--status", "5xx"), [2]),
        (("--error", "server_is_overloaded"), [2]),
        (("--error", "other"), []),
        (("--text", "ROOM"), [2]),
        (("--group", "default", "--channel", "main", "--account", "a1"), [3, 2, 1]),
        (("--group", "other"), []),
        (("--since", "1970-01-01", "--until", "2100-01-01"), [3, 2, 1]),
        (("--since", "1h"), []),
    ],
)
def test_pages_and_filters(
    shell: CommandRunner, token_id: str, filters: tuple[str, ...], numbers: list[int]
) -> None:
    rows = shell.items("logs", "list", *filters)
    assert ids(rows) == [request_id(number) for number in numbers]
    assert all(set(row) == set(RequestRow._fields) for row in rows)
    assert all(row["token_id"] == token_id for row in rows)


@pytest.mark.parametrize("filters", [(), ("--state", "ok")])
def test_an_export_has_the_rows_of_the_list(
    shell: CommandRunner, token_id: str, filters: tuple[str, ...]
) -> None:
    rows = shell.items("logs", "list", *filters)
    exported = shell("logs", "export", *filters).stdout
    assert [orjson.loads(line) for line in exported.splitlines()] == rows
    assert shell("logs", "export", "--json", *filters).stdout == exported
    table = list(csv.DictReader(io.StringIO(shell("logs", "export", "--csv", *filters).stdout)))
    assert ids(table) == ids(rows)
    assert all(row["model"] == each["model"] for row, each in zip(table, rows, strict=True))


def test_a_long_search_says_where_it_goes_on(
    shell: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_id = shell.create_key("alice")["id"]
    times = [START + minute * 60_000_000 for minute in (0, 30)]
    rows = [
        settlement(n, key_id, id=f"{first_id(at)}00000000ff", started_at=at, account=f"a{n}")
        for n, at in enumerate(times)
    ]
    with admin_gateway(shell.state_dir) as gateway:
        record(gateway, *rows)
    slow_down(monkeypatch)
    result = shell("logs", "list", "--account", "a0", "--json")
    page = orjson.loads(result.stdout)
    assert (result.exit_code, page["items"]) == (0, [])
    assert re.search(r"Searched back to \d{4}-.*\.", result.stderr)
    assert times[0] < started_us(page["next"]) < times[1]
    exported = shell("logs", "export", "--account", "a0").stdout.splitlines()
    assert ids(map(orjson.loads, exported)) == [rows[0].id]


def test_an_export_has_one_format(shell: CommandRunner, token_id: str) -> None:
    result = shell("logs", "export", "--csv", "--json")
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_table(shell: CommandRunner, token_id: str) -> None:
    result = shell("logs", "list", "--limit", "2")
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert [line.split()[0] for line in lines[1:]] == [request_id(3), request_id(2)]
    assert "alice" in lines[2]
    assert "error" in lines[2]
    assert f"--before {request_id(2)}" in result.stderr


def test_details_of_a_request(shell: CommandRunner, token_id: str) -> None:
    result = shell("logs", "show", request_id(2))
    story, table = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert story[0].startswith("alice called /v1/messages for beta-5.4 at ")
    assert lines_of(story[1:]) == [
        "main/a1 with alpha-sonnet-4-6.",
        "Response to the client: 503 (server_is_overloaded) in 1.2 s, TTFT 350 ms: error.",
        "Cost: 0 units for 100 input tokens (40 read from the cache, 10 written to it)"
        " and 7 output tokens (3 for reasoning).",
        "Tokens reported by the upstream.",
    ]
    assert [line.split()[0] for line in table] == list(RequestRow._fields)
    assert r"no \x1b[31m[bold]room\u202e" in result.stdout
    assert ["dropped", "seed,", "top_k"] in [line.split() for line in table]
    assert "\x1b" not in result.stdout
    row = shell.json("logs", "show", request_id(2))
    assert (row["upstream_error"], row["tried"]) == (FAILED["upstream_error"], [])


def test_summary_of_a_failover(shell: CommandRunner) -> None:
    created_id = shell.create_key("alice")["id"]
    tried = (
        failed_attempt(error='{"error": "no \x1b[31m[bold]room\u202e"}', account="a\u202e1"),
        attempt(account="b2", reason="next by weight", started_us=125_000),
    )
    end = settlement(
        1,
        created_id,
        account="b2",
        channel="main",
        upstream_model="alpha-sonnet-4-6",
        lane="native",
        affinity="prompt_cache_key",
        affinity_kept="no: cooling",
        attempts=2,
    )
    with admin_gateway(shell.state_dir) as gateway:
        record(gateway, LogEntry(end, tried))
        record(gateway, LogEntry(settlement(2, created_id, attempts=1), tried[1:]))
        record(gateway, intent(3, created_id))
    result = shell("logs", "show", request_id(1))
    story, table = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert lines_of(story[1:]) == [
        "Session affinity by prompt_cache_key: account not kept (cooling).",
        r"1. main/a\u202e1 with alpha-sonnet-4-6 (messages, native) at 2 ms:"
        " the conversation's own.",
        r'Response 429 in 120 ms: {"error": "no \x1b[31m[bold]room\u202e"}',
        "Verdict: rate limited (rate limited or overloaded,"
        " cooldown of the account for this model).",
        "Next: another account.",
        "2. main/b2 with alpha-sonnet-4-6 (messages, native) at 125 ms: next by weight.",
        "Response 200 in 1.2 s, TTFT 348 ms.",
        "Response to the client: 200 in 1.2 s, TTFT 350 ms: ok.",
        "Cost: 0 units for 100 input tokens (40 read from the cache, 10 written to it)"
        " and 7 output tokens (3 for reasoning).",
        "Tokens reported by the upstream.",
    ]
    assert ["attempts", "2"] in [line.split() for line in table]
    assert "\x1b" not in result.stdout
    row = shell.json("logs", "show", request_id(1))
    assert row["account"] == "b2"
    assert row["tried"] == [each._asdict() for each in tried]
    assert [row["attempts"] for row in shell.items("logs", "list")] == [0, 1, 2]
    titles, *lines = shell("logs", "list").stdout.splitlines()
    start, end_ = titles.index("Attempts"), titles.index("State")
    assert [line[start:end_].strip() for line in lines] == ["", "", "2"]
    start, end_ = titles.index("Input") + len("Input"), titles.index("Cached") + len("Cached")
    assert [line[start:end_].strip() for line in lines] == ["0", "40", "40"]


def test_summary_of_searches(shell: CommandRunner) -> None:
    created_id = shell.create_key("alice")["id"]
    searches = (
        SearchRow("weather \x1b[31mOslo", 5_000, 120_000, 8),
        SearchRow("weather", 200_000, 10_000_000, error="unavailable: it took too long"),
    )
    with admin_gateway(shell.state_dir) as gateway:
        end = settlement(1, created_id, attempts=1, web_searches=1)
        record(gateway, LogEntry(end, (attempt(),), searches))
    result = shell("logs", "show", request_id(1))
    story, table = (part.splitlines() for part in result.stdout.split("\n\n"))
    sentences = lines_of(story)
    at = sentences.index("2 web searches by the gateway.")
    assert sentences[at + 1 : at + 3] == [
        r'"weather \x1b[31mOslo" at 5 ms, 120 ms: 8 results.',
        '"weather" at 200 ms, 10.0 s: unavailable: it took too long.',
    ]
    assert ["web_searches", "1"] in [line.split() for line in table]
    assert sentences[-2].endswith("(3 for reasoning) and 1 web search.")
    row = shell.json("logs", "show", request_id(1))
    assert row["searches"] == [each._asdict() for each in searches]


def test_summary_of_costs(shell: CommandRunner, tmp_path: Path) -> None:
    created_id = shell.create_key("alice")["id"]
    dear = {"input_tokens": 12_345, "cache_write_1h_tokens": 4, "cost_micro": 61_728_500_000}
    guess = {"usage_source": "estimated", "cost_micro": 1_000_000}
    with admin_gateway(shell.state_dir) as gateway:
        notes = {"tariff": "model 2.5, group 2", "notes": "user agent observed"}
        record(gateway, settlement(1, created_id, **notes, **dear))
        record(gateway, settlement(2, created_id, **guess))
        nothing = settlement(3, created_id, usage_source="none", input_tokens=0, output_tokens=0)
        record(gateway, nothing)
        running = {"expected_input_tokens": 5000, "expected_micro": 12_500_000_000}
        record(gateway, intent(4, created_id, **running))
        story = shell("logs", "show", request_id(4)).stdout.split("\n\n")[0]
        assert lines_of(story.splitlines())[-2:] == [
            "Still running.",
            "Estimated prompt: 5\u202f000 tokens, 12\u202f500 units;"
            " billed if the usage stays unknown.",
        ]
    file = tmp_path / "channels.yaml"
    file.write_text("money: {unit_price: 0.000002, currency: EUR}\n")
    result = shell("logs", "show", request_id(1), "--config", str(file))
    story, table = result.stdout.split("\n\n")
    lines = lines_of(story.splitlines())
    assert lines[1] == "Warnings: user agent observed."
    assert lines[-3:] == [
        "Cost: 61\u202f728.5 units (0.1235 EUR) for 12\u202f345 input tokens"
        " (40 read from the cache, 10 written to it, 4 of them for an hour)"
        " and 7 output tokens (3 for reasoning).",
        "Tokens reported by the upstream.",
        "Multipliers: model 2.5, group 2.",
    ]
    assert "61728500000 (61\u202f728.5 units)" in table
    lines = lines_of(shell("logs", "show", request_id(2)).stdout.split("\n\n")[0].splitlines())
    assert lines[-2].startswith("Cost: 1 unit for 100 input tokens")
    assert lines[-1] == "Tokens estimated: the upstream did not report all of them."
    lines = lines_of(shell("logs", "show", request_id(3)).stdout.split("\n\n")[0].splitlines())
    assert lines[-1] == "No tokens, no cost."
    titles, *rows = shell("logs", "list").stdout.splitlines()
    start, end = titles.index("Output") + len("Output"), titles.index("Units") + len("Units")
    assert [row[start:end].strip() for row in rows] == ["0", "0", "~1", "61\u202f728.5"]
    assert titles.split()[-3:] == ["USD", "Duration", "Reason"]
    tail = shell("logs", "tail").stdout.splitlines()
    assert "  ~1 units  " in tail[1]


def test_a_long_value_does_not_widen_other_lines(shell: CommandRunner) -> None:
    shell.create_key("alice")
    with admin_gateway(shell.state_dir) as gateway:
        long = "m" * 5000
        record(gateway, settlement(1, "tok_gone", model=long, upstream_error=long))
    for command in (("list",), ("tail",)):
        assert all(len(line) < 200 for line in shell("logs", *command).stdout.splitlines())
    lines = shell("logs", "show", request_id(1)).stdout.splitlines()
    assert sum(len(line) > 200 for line in lines) == 3, "the opening, the model and the error"


def test_a_running_request(shell: CommandRunner, token_id: str) -> None:
    assert "Still running." in shell("logs", "show", request_id(3)).stdout


def test_the_latest_are_last(shell: CommandRunner, token_id: str) -> None:
    lines = shell("logs", "tail", "--limit", "2").stdout.splitlines()
    assert [line.split("  ")[1] for line in lines] == [request_id(2), request_id(3)]
    result = shell("logs", "tail", "--json")
    rows = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert ids(rows) == [request_id(number) for number in (1, 2, 3)]


@in_one_test(
    ("arguments", "code", "message"),
    [
        (("show", "req_x"), 1, "The request log has no request req_x. "),
        (("list", "--key", "bob"), 1, "No key has the id or name bob."),
        (("list", "--state", "gone"), 2, "'gone' is not one of 'running', 'ok'"),
        (("list", "--limit", "0"), 2, "0 is not in the range"),
        (("list", "--status", "99"), 2, "must be a status such as 503 or a class such as 5xx"),
    ],
)
def test_refusals(
    shell: CommandRunner, arguments: tuple[str, ...], code: int, message: str
) -> None:
    shell.state_dir.mkdir(exist_ok=True)
    result = shell("logs", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


@pytest.mark.processes
def test_following_prints_each_request_once_when_it_ends(
    shell: CommandRunner, token_id: str
) -> None:
    """Also one whose id comes before those that were told, and through a gateway's restart."""
    follower = shell.process("logs", "tail", "--follow", "--json", "--limit", "1")
    assert follower.stdout is not None
    assert follower.stderr is not None

    def next_row() -> tuple[str, str]:
        row = orjson.loads(follower.stdout.readline())
        return row["id"], row["state"]

    try:
        assert next_row() == (request_id(3), "running")
        assert follower.stderr.readline().startswith(b"No gateway runs on the state directory")
        with admin_gateway(shell.state_dir) as gateway:
            assert next_row() == (request_id(3), "interrupted")
            record(gateway, intent(9, token_id), settlement(8, token_id))
            assert next_row() == (request_id(8), "ok")
            record(gateway, intent(7, token_id))
        with admin_gateway(shell.state_dir) as gateway:
            assert {next_row(), next_row()} == {
                (request_id(7), "interrupted"),
                (request_id(9), "interrupted"),
            }
            record(gateway, settlement(10, token_id))
            assert next_row() == (request_id(10), "ok")
        follower.send_signal(signal.SIGINT)
        rest, _ = follower.communicate(timeout=10)
    finally:
        follower.kill()
        follower.wait()
    assert (follower.returncode, rest) == (0, b"")


def test_refused_requests(shell: CommandRunner, token_id: str) -> None:
    """Why they were refused, and how many of them share a row."""
    refusal = {
        "state": ExchangeState.REJECTED,
        "status": 429,
        "error_code": "insufficient_quota",
        "error_message": "Insufficient quota: key alice: daily budget of 5 units: 5 spent",
        "channel": None,
        "usage_source": "none",
        "first_event_us": None,
        "requests": 1234,
    }
    with admin_gateway(shell.state_dir) as gateway:
        record(gateway, settlement(4, token_id, **refusal))
    shown = shell("logs", "show", request_id(4)).stdout
    story = lines_of(shown.split("\n\n")[0].splitlines()[1:])
    assert story == [
        "The last of 1\u202f234 requests that were refused alike.",
        "No upstream was called.",
        "Response to the client: 429 (insufficient_quota) in 1.2 s: rejected.",
        "Insufficient quota: key alice: daily budget of 5 units: 5 spent.",
        "No tokens, no cost.",
    ]
    assert "rejected (1,234)" in shell("logs", "list").stdout
    assert [row["requests"] for row in shell.items("logs", "list")] == [1234, 1, 1, 1]
    (found,) = shell.items("logs", "list", "--text", "daily budget")
    assert found["error_message"] == refusal["error_message"]
