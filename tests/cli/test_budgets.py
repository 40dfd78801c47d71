"""`gateway budgets`, and budgets in dollars and for rolling windows in other commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.options import now_us
from tests.cli.cli_runner import AdminGateway, CommandRunner
from tests.store.sample_rows import intent, settled

HOUR = 3_600_000_000


@pytest.fixture
def alice(shell: CommandRunner, gateway: AdminGateway) -> str:
    """A key that has spent something an hour ago, yesterday and 40 days ago."""
    id = str(shell.create_key("alice", **{"budget-usd-5h": "2", "budget-week": "1k"})["id"])

    async def work() -> None:
        for number, hours in enumerate((1, 30, 40 * 24)):
            row = intent(number, id, started_at=now_us() - hours * HOUR)
            row = row._replace(id=f"req_{row.started_at:014x}{number:010}")
            gateway.recorder.record_intent(row)
            costs = {"cost_micro": 10_000_000, "usd_micro": 500_000}
            gateway.recorder.record_settlement(settled(row, **costs))
        await gateway.recorder.record_intent(intent(9, id))

    gateway.do(work)
    return id


def test_the_budgets_in_use(shell: CommandRunner, alice: str) -> None:
    shell("group", "set", "default", "--budget-usd-month", "2.50", "--budget-day", "0")
    lines = shell("budgets").stdout.replace("\u202f", " ").splitlines()
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert cells[0] == ["Of", "Budget", "Limit", "Spent", "Reserved", "Used", "Resets"]
    by_name = {(row[0], row[1]): row[2:] for row in cells[1:]}
    assert by_name["key alice", "5-hour"][:4] == ["$2.00", "$0.50", "$0.00", "█████"]
    assert by_name["key alice", "Weekly"][:3] == ["1 000 units", "20 units", "0 units"]
    assert by_name["group default", "Daily"][0] == "0 units"
    assert by_name["group default", "Daily"][3] == "100 %"
    assert lines[1].startswith("group default"), "the most used first"


def test_json(shell: CommandRunner, alice: str) -> None:
    records = {each["budget"]: each for each in shell.items("budgets")}
    assert set(records) == {"budget_usd_5h", "budget_week"}
    five_hours = records["budget_usd_5h"]
    resets_at = five_hours.pop("resets_at")
    assert five_hours == {
        "kind": "key",
        "id": alice,
        "name": "alice",
        "budget": "budget_usd_5h",
        "currency": "usd",
        "window": "5h",
        "limit": 2_000_000,
        "spent": 500_000,
        "reserved": 0,
    }
    assert now_us() + 3 * HOUR < resets_at < now_us() + 5 * HOUR
    assert records["budget_week"]["spent"] == 20_000_000


def test_details_of_a_key(shell: CommandRunner, alice: str) -> None:
    shell("key", "set", "alice", "--budget-usd", "$50", "--budget", "5k")
    text = shell("key", "show", "alice").stdout.replace("\u202f", " ")
    details = {line[:18].strip(): line[18:].strip() for line in text.splitlines()}
    assert details["Total budget"] == "5 000 units, 30 spent; $50.00, $1.50 spent"
    assert details["5-hour budget"] == "$2.00, $0.5000 spent"
    assert details["Weekly budget"] == "1 000 units, 20 spent"
    assert details["Cost"] == "30 units ($1.50)"
    spent = shell.json("key", "show", "alice")["spent_micro"]
    assert (spent["budget_usd"], spent["budget_usd_5h"], spent["budget_week"]) == (
        *(1_500_000, 500_000),
        20_000_000,
    )
    shell("key", "set", "alice", "--budget-usd", "none", "--budget-usd-5h", "none")
    assert "$50" not in shell("key", "show", "alice").stdout


@pytest.mark.parametrize("amount", ["many", "-1", "1.2345678", "$", "2000G"])
def test_amounts_that_are_no_dollars(shell: CommandRunner, alice: str, amount: str) -> None:
    result = shell("key", "set", "alice", "--budget-usd-week", amount)
    assert result.exit_code
    assert "--budget-usd-week" in result.stderr


@pytest.mark.parametrize(
    ("config", "warns"),
    [
        ("models: [{id: beta-5.4, family: beta}]", True),
        ("models: [{id: beta-5.4, family: beta, price: {input: 1, output: 2}}]", False),
        ("money: {unit_price: 0.001}", False),
        ("money: {unit_price: 0.001, currency: EUR}", True),
    ],
)
def test_a_budget_in_dollars_without_any_price(
    shell: CommandRunner, tmp_path: Path, config: str, warns: bool
) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text(f"{config}\n")
    shell.create_key("alice")
    options = ("--config", str(file), "--budget-usd-day", "5")
    for command in (("key", "set", "alice"), ("group", "set", "default")):
        assert ("has a price in USD" in shell(*command, *options).stderr) is warns
    result = shell("key", "set", "alice", "--config", str(file), "--budget-usd-day", "none")
    assert "has a price in USD" not in result.stderr
