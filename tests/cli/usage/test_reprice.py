"""`gateway usage reprice`: the difference by key and model, tried and done."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.options import now_us
from gateway.store.log.pages import first_id
from tests.cli.cli_runner import CommandRunner, admin_gateway
from tests.store.sample_rows import intent, settled

DAY = 86_400_000_000
TARIFF = "model 1, group 0.5; USD per million tokens: input 1, output 2"
CONFIG = """
models:
  - {id: beta-5.4, family: beta, price: {input: 1, output: 2}}
  - {id: beta-own, family: beta, price: {input: 1, output: 2}}
channels:
  - name: one
    format: chat
    base_url: http://127.0.0.1:1/v1
    accounts: [{name: a, key: none}]
    models: {beta-5.4: m, beta-own: m}
"""
PRICES = (
    "models: {beta-5.4: {input: 3, output: 2}}\nchannels: {one: {beta-own: {input: 1, output: 9}}}"
)


@pytest.fixture
def config(shell: CommandRunner, tmp_path: Path) -> str:
    """Alice has used two models yesterday, 1,000 tokens in and 70 out of each, and one today."""
    key = shell.create_key("alice")["id"]
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            for number, model in enumerate(("beta-5.4", "beta-own", "beta-5.4")):
                start = now_us() - (DAY if number < 2 else 0) + number
                row = intent(number, str(key), id=f"{first_id(start)}{number:010}")
                row = row._replace(started_at=start, catalog_model=model, channel="one")
                row = row._replace(tariff=TARIFF)
                gateway.recorder.record_intent(row)
                counts = {"input_tokens": 1000, "output_tokens": 70, "cache_read_tokens": 0}
                counts |= {"cache_write_tokens": 0, "usd_micro": 570, "reasoning_tokens": 0}
                gateway.recorder.record_settlement(settled(row, **counts))

        gateway.do(work)
    file = tmp_path / "channels.yaml"
    file.write_text(CONFIG)
    (tmp_path / "other.yaml").write_text(PRICES)
    return str(file)


def test_tried_then_done(shell: CommandRunner, config: str, tmp_path: Path) -> None:
    command = ("usage", "reprice", "--since", "7d", "--config", config)
    same = shell.json(*command)
    assert (same["rows"], same["kept"], same["differences"]) == (2, 0, [])
    other = (*command, "--prices", str(tmp_path / "other.yaml"))
    tried = shell(*other, "--dry-run")
    assert tried.exit_code == 0, tried.output
    assert "Nothing was changed." in tried.stderr
    for text in ("$0.00057", "$0.00157", "+$0.001", "$0.000815", "+$0.000245", "$0.002385"):
        assert text in tried.stdout
    done = shell.json(*other)
    found = {each["model"]: (each["name"], each["usd_after"]) for each in done["differences"]}
    assert found == {"beta-5.4": ("alice", 1570), "beta-own": ("alice", 815)}
    assert shell.json(*other)["differences"] == []
    usage = shell.json("usage", "--since", "7d")
    assert usage["total"]["usd_micro"] == 570 + 1570 + 815
    assert shell("db", "check").exit_code == 0
    (entry,) = shell.items("admin", "audit", "--what", "usage.reprice")
    assert entry["after"]["rows"] == 2


def test_mistakes(shell: CommandRunner, config: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("models: {beta-5.4: {inputs: 3}}")
    result = shell("usage", "reprice", "--since", "7d", "--config", config, "--prices", str(bad))
    assert result.exit_code != 0
    assert "inputs" in result.stderr
    assert shell("usage", "reprice", "--config", config).exit_code == 2, "--since is required"
