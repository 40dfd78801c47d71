"""The output of `gateway key list` and `gateway key show`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.options import now_us
from gateway.store import tokens
from tests.cli.cli_runner import AdminGateway, CommandRunner
from tests.store.sample_rows import intent, settled

DAY = 86_400_000_000


def fields(text: str) -> dict[str, str]:
    return {line[:18].strip(): line[18:].strip() for line in text.splitlines()}


@pytest.fixture
def used(shell: CommandRunner, gateway: AdminGateway) -> str:
    """A key with a budget, of which something was spent today and something 40 days ago."""
    created_id = str(shell.create_key("alice", budget="5M", rpm="600")["id"])

    async def work() -> None:
        for number, (at, cost) in enumerate([(now_us(), 2_500_000), (now_us() - 40 * DAY, 10**9)]):
            row = intent(number, created_id, started_at=at)
            opened = gateway.recorder.record_intent(row)
            gateway.recorder.record_settlement(settled(row, cost_micro=cost))
            await opened
        later = gateway.recorder.record_intent(intent(9, created_id))
        await later  # what was handed over before it is in the ledger now

    gateway.do(work)
    return created_id


def test_spent_budgets(shell: CommandRunner, used: str) -> None:
    shell("key", "set", "alice", "--budget-day", "10", "--budget-month", "1k")
    details = fields(shell("key", "show", "alice").stdout)
    assert details["RPM"] == "600"
    assert details["Total budget"].replace("\u202f", " ") == "5 000 000 units, 1 002.5 spent"
    assert details["Daily budget"] == "10 units, 2.5 spent"
    assert details["Monthly budget"].replace("\u202f", " ") == "1 000 units, 2.5 spent"
    assert details["Cost"].replace("\u202f", " ") == "1 002.5 units"
    assert shell.json("key", "show", "alice")["spent_micro"] == {
        "budget": 1_002_500_000,
        "budget_day": 2_500_000,
        "budget_month": 2_500_000,
        **dict.fromkeys(("budget_usd", "budget_usd_day", "budget_usd_month"), 0),
    }
    assert shell.json("group", "show", "default")["spent_micro"]["budget"] == 1_002_500_000


def test_budgets_of_each_end_user(shell: CommandRunner, used: str) -> None:
    options = (
        "--trust",
        "end-user",
        "--budget-usd-day-per-user",
        "2",
        "--budget-day-per-user",
        "9",
    )
    shell("key", "set", "alice", *options)
    details = fields(shell("key", "show", "alice").stdout)
    assert details["Each end user"] == "9 units a day; $2.00 a day"
    assert details["Each session"] == "-"
    result = shell("key", "set", "alice", "--trust", "none")
    assert result.exit_code == 1
    assert "--budget-day-per-user: This budget needs a key that trusts end-user" in result.stderr
    none = ("--budget-day-per-user", "none", "--budget-usd-day-per-user", "none")
    assert shell("key", "set", "alice", "--trust", "none", *none).exit_code == 0


def test_prices_with_a_configured_unit_price(
    shell: CommandRunner, used: str, tmp_path: Path
) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text("money: {unit_price: 0.002, currency: EUR}\n")
    titles, line = shell("key", "list", "--config", str(file)).stdout.splitlines()
    assert "Price" in titles
    assert line.rstrip().endswith("1\u202f002.5  2.00 EUR")
    details = fields(shell("key", "show", "alice", "--config", str(file)).stdout)
    assert details["Cost"].replace("\u202f", " ") == "1 002.5 units (2.00 EUR)"


def test_a_new_origin_is_a_warning(shell: CommandRunner, gateway: AdminGateway) -> None:
    token_id = shell.create_key("alice")["id"]
    first = (now_us(), "10.0.0.1", "codex/1\x1b[31m")
    changed = (now_us(), "192.0.2.7 by curl/8\u202e came after 10.0.0.1 by codex/1")
    gateway.do(
        lambda: tokens.record_origin(gateway.database, token_id, first=first, changed=changed)
    )
    line = shell("key", "list").stdout.splitlines()[1]
    assert r"! 192.0.2.7 by curl/8\u202e came" in line
    details = fields(shell("key", "show", "alice").stdout)
    assert details["First used"].endswith(r"from 10.0.0.1 by codex/1\x1b[31m")
    assert details["Warning"].startswith(
        r"192.0.2.7 by curl/8\u202e came after 10.0.0.1 by codex/1, at "
    )


def test_an_expired_key(shell: CommandRunner, gateway: AdminGateway) -> None:
    shell.create_key("alice", expires="1s")
    shell.create_key("bob", expires="30d")
    (alice, _) = shell.items("key", "list")
    token = gateway.registry.token(alice["id"])
    assert token is not None
    assert alice["state"] == "active", "scripts have expires_at"
    while now_us() <= alice["expires_at"]:
        pass
    lines = shell("key", "list").stdout.splitlines()[1:]
    assert ["expired" in line for line in lines] == [True, False]
    assert fields(shell("key", "show", "alice").stdout)["State"] == "expired"
    result = shell("key", "set", "alice", "--note", "late")
    assert "To extend it: `gateway key set" in result.stderr
    assert "--expires 30d`" in result.stderr


def test_the_list_fits_a_wide_terminal(shell: CommandRunner) -> None:
    shell.create_key("n" * 100, expires="30d")
    assert all(len(line) < 180 for line in shell("key", "list").stdout.splitlines())
