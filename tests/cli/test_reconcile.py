"""`gateway reconcile`: all planted differences are found, and none is invented."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.reconcile.comparison import Comparison
from gateway.cli.reconcile.exports import read_export
from gateway.config.load import load_config
from gateway.core.events import Usage
from gateway.store.log.pages import first_id
from tests.cli.cli_runner import CommandRunner, admin_gateway
from tests.cli.reconcile.planted_bill import (
    Planted,
    anthropic_usage,
    by_hour,
    by_request,
    openai_usage,
    plant,
)
from tests.store.sample_rows import intent, settled

CONFIG = """
models:
  - id: big
    family: beta
    price: {input: 3, output: 15, cache_read: 0.3, service_tiers: {priority: 2, flex: 0.5}}
  - id: little
    family: beta
    price: {input: 0.25, output: 2, cache_read: 0.025, service_tiers: {priority: 2, flex: 0.5}}
channels:
  - name: vendor
    format: chat
    base_url: http://127.0.0.1:1/v1
    accounts: [{name: a, key: none}]
    models: {big: large, little: small}
"""
CATALOG = {"large": "big", "small": "little"}
NUMBER = 800


def compare(
    shell: CommandRunner, tmp_path: Path, planted: Planted, content: str | dict[str, Any]
) -> dict[str, Any]:
    """What the command says of a log in whose costs a group's multiplier is."""
    key = str(shell.create_key("alice")["id"])
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            for number, each in enumerate(planted.log):
                start = each.at * 1_000_000
                opened = intent(number, key, id=f"{first_id(start)}{number:010}", started_at=start)
                opened = opened._replace(
                    channel="vendor",
                    upstream_model=each.model,
                    catalog_model=CATALOG[each.model],
                    tariff=f"model 1, group 3; service tier {each.tier}: times 9",
                )
                row = settled(
                    opened,
                    input_tokens=each.input,
                    cache_read_tokens=each.cached,
                    cache_write_tokens=0,
                    output_tokens=each.output,
                    reasoning_tokens=0,
                    usd_micro=round(each.cost * 3),
                    upstream_id=each.id,
                )
                gateway.recorder.record_settlement(row)

        gateway.do(work)
    config, export = tmp_path / "channels.yaml", tmp_path / "export"
    config.write_text(CONFIG)
    export.write_text(content if isinstance(content, str) else json.dumps(content))
    result: dict[str, Any] = shell.json("reconcile", str(export), "--config", str(config))
    return result


def check(result: dict[str, Any], planted: Planted, *, lines: bool = True, digits: int = 1) -> None:
    """`digits` are millionths that a line leaves open."""
    found = {each["cause"]: each for each in result["causes"]}
    rounding = found.pop("rounding", None)
    assert found.keys() == planted.causes.keys()
    for cause, cost in planted.causes.items():
        slack = planted.lines[cause] * digits
        assert abs(found[cause]["usd"] - cost) <= slack, cause
        if lines:
            assert found[cause]["lines"] == planted.lines[cause], cause
    if rounding is not None:
        assert abs(rounding["usd"]) <= 5000 * rounding["lines"]
    assert result["billed"] - result["own"] == result["difference"]


@pytest.mark.parametrize("seed", range(2))
def test_requests_by_their_ids(shell: CommandRunner, tmp_path: Path, seed: int) -> None:
    causes = ("not ours", "lost", "tier", "cache", "count", "price")
    planted = plant(seed, NUMBER, causes)
    assert planted.causes.keys() == set(causes)
    check(compare(shell, tmp_path, planted, by_request(planted)), planted)


def test_hours(shell: CommandRunner, tmp_path: Path) -> None:
    """An hour's lines are one: of several planted differences in it one is found."""
    causes = ("not ours", "lost", "cache", "count")
    planted = plant(2, NUMBER, causes, hours=True)
    result = compare(shell, tmp_path, planted, by_hour(planted))
    assert result["export"] == "plain"
    check(result, planted, lines=False, digits=5000)


@pytest.mark.parametrize(
    ("export", "name", "causes"),
    [
        (openai_usage, "openai", ("tier",)),
        (openai_usage, "openai", ("lost",)),
        (anthropic_usage, "anthropic", ("cache",)),
        (anthropic_usage, "anthropic", ("not ours", "lost")),
    ],
)
def test_exports_of_vendors(
    shell: CommandRunner, tmp_path: Path, export: Any, name: str, causes: tuple[str, ...]
) -> None:
    planted = plant(3, NUMBER, causes, hours=name == "anthropic")
    result = compare(shell, tmp_path, planted, export(planted))
    assert result["export"] == name
    check(result, planted, lines=False)


def test_the_same_on_both_sides(shell: CommandRunner, tmp_path: Path) -> None:
    planted = plant(4, 50, ("lost",), one_in=10**9)
    result = compare(shell, tmp_path, planted, openai_usage(planted))
    assert (result["causes"], result["difference"], result["unpriced"]) == ([], 0, 0)
    assert result["own"] > 0


def test_mistakes(shell: CommandRunner, tmp_path: Path) -> None:
    config, export = tmp_path / "channels.yaml", tmp_path / "export.csv"
    config.write_text(CONFIG)
    for text, message in (
        ("a,b\n1,2\n", "no known export"),
        ("{]", "neither CSV nor JSON"),
        ("start,model,input,output\n2026-05-01,m,x,1\n", "row 1"),
        ("start,model,input,output\n", "no rows with usage"),
    ):
        export.write_text(text)
        result = shell("reconcile", str(export), "--config", str(config))
        assert result.exit_code == 1
        assert message in result.stderr


def test_a_file_that_is_too_large(shell: CommandRunner, tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.touch()
    os.truncate(file, 257 * 2**20)
    config = tmp_path / "gateway.yaml"
    config.write_text(CONFIG)
    result = shell("reconcile", str(file), "--config", str(config))
    assert result.exit_code == 1
    assert "export.csv is larger than 256 MiB: divide it." in result.output


def test_memory_is_that_of_the_export(tmp_path: Path) -> None:
    """Rows with a line of their own are explained as they come: the log may be long."""
    planted = plant(5, 300, ("tier",), one_in=10**9)
    export, config = tmp_path / "export.csv", tmp_path / "channels.yaml"
    export.write_text(by_request(planted))
    config.write_text(CONFIG)
    loaded = load_config(config, state_dir=tmp_path, resolve_secrets=False)
    comparison = Comparison(read_export(export), loaded, ())
    nothing = dict.fromkeys(Usage.__annotations__, 0)
    tracemalloc.start()
    try:
        for each in planted.log:
            row = nothing | {
                "channel": "vendor",
                "usage_source": "upstream",
                "upstream_model": each.model,
                "upstream_id": each.id,
                "started_at": each.at * 1_000_000,
                "catalog_model": CATALOG[each.model],
                "tariff": f"model 1, group 1; service tier {each.tier}: times 1",
                "input_tokens": each.input,
                "cache_read_tokens": each.cached,
                "output_tokens": each.output,
            }
            comparison.add(row)
        added, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert comparison.result()["parts"] == []
    assert added < 100 * len(planted.log)


def test_several_lines_and_rows_of_one_request(tmp_path: Path) -> None:
    """Its lines are compared together; a second row of a single line has none."""
    config, export = tmp_path / "channels.yaml", tmp_path / "export.csv"
    config.write_text(CONFIG)
    export.write_text(
        "id,start,model,input,output\n"
        "twice,1791000000,large,100,0\n"
        "twice,1791000001,large,50,0\n"
        "once,1791000002,large,10,0\n"
    )
    loaded = load_config(config, state_dir=tmp_path, resolve_secrets=False)

    def found(*rows: tuple[str, int]) -> dict[str, int]:
        comparison = Comparison(read_export(export), loaded, ())
        for number, (upstream_id, tokens) in enumerate(rows):
            counts = dict.fromkeys(Usage.__annotations__, 0) | {"input_tokens": tokens}
            row = {"upstream_id": upstream_id, "upstream_model": "large", "catalog_model": "big"}
            row |= {"id": f"req_{number}", "started_at": 1_791_000_900_000_000, "tariff": ""}
            comparison.add(row | counts | {"channel": "vendor", "usage_source": "upstream"})
        return {each["cause"]: round(each["usd"]) for each in comparison.result()["causes"]}

    assert found(("twice", 50), ("twice", 100), ("once", 10)) == {}
    assert found(("twice", 50), ("once", 10)) == {"not ours": 300}
    assert found(("twice", 50), ("twice", 100), ("once", 10), ("once", 10)) == {"lost": -30}
