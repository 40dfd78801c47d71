"""`gateway db check`: consistent totals, and every difference."""

from __future__ import annotations

import pytest

from gateway.store.lock import DATABASE_NAME
from tests.cli.cli_runner import CommandRunner, admin_gateway
from tests.store.sample_rows import intent, raw_connection, settlement


@pytest.fixture
def token_id(shell: CommandRunner) -> str:
    created_id = str(shell.create_key("alice")["id"])
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            for number in range(3):
                opened = gateway.recorder.record_intent(intent(number, created_id))
                gateway.recorder.record_settlement(settlement(number, created_id, cost_micro=5))
            await opened
            await gateway.recorder.record_intent(intent(9, created_id))

        gateway.do(work)
    return created_id


def test_consistent_totals(shell: CommandRunner, token_id: str) -> None:
    result = shell("db", "check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "The totals of all keys (1) are the sums of their hours.",
        "The hourly sums (1) are the sums of their rows (4).",
        "Running requests: 1.",
    ]
    report = shell.json("db", "check")
    assert (report["clean"], report["keys"], report["rows"], report["open"]) == (True, 1, 4, 1)


def test_with_a_running_gateway(shell: CommandRunner, token_id: str) -> None:
    with admin_gateway(shell.state_dir):
        assert shell("db", "check").exit_code == 0


def test_every_difference_is_listed(shell: CommandRunner, token_id: str) -> None:
    with raw_connection(shell.state_dir / DATABASE_NAME) as connection:
        connection.execute("UPDATE tokens SET cost_micro = 14, requests = 4")
        connection.execute("UPDATE usage_hours SET output_tokens = 22")
    result = shell("db", "check")
    assert result.exit_code == 1
    _, *rows = [line.split() for line in result.stdout.splitlines()]
    assert [(row[0], row[1], *row[-2:]) for row in rows] == [
        ("tokens.requests", token_id, "4", "3"),
        ("tokens.output_tokens", token_id, "21", "22"),
        ("tokens.cost_micro", token_id, "14", "15"),
        ("usage_hours.output_tokens", token_id, "22", "21"),
    ]
    assert "Differences: 4, in the totals of 1 keys" in result.stderr
    assert "Nothing was changed." in result.stderr
    result = shell("db", "check", "--json")
    assert result.exit_code == 1
    assert '"clean": false' in result.stdout


def test_a_missing_state_directory(shell: CommandRunner) -> None:
    result = shell("db", "check")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "There is no state directory" in result.stderr
