"""Alert rules, dashboard and scrape configuration: valid for promtool, and about series that exist.
`test_families_alerts` provokes what can be provoked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse

from gateway.telemetry.exposition import render
from gateway.telemetry.families import FAMILIES
from gateway.telemetry.metrics import Metrics
from tests.support.paths import ROOT
from tests.support.programs import find_program
from tests.test_docs import COMMANDS, named_command, options

FOLDER = ROOT / "docs" / "monitoring"
RULES = FOLDER / "prometheus-rules.yml"
REPLICA_RULES = FOLDER / "prometheus-rules-replicas.yml"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
LABELS = {
    name: {*family.labels, *(["le"] if suffix == "_bucket" else [])}
    for family in FAMILIES
    for suffix in (("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",))
    for name in (family.name + suffix,)
}
"""By the name of each series."""
LABELS |= {
    family.name + suffix: set()
    for family in parse(render(Metrics(), {}, "")[0].decode())
    for suffix in ("", "_total")
    if family.name.startswith("process_")
}
LABELS["up"] = set()
EVERYWHERE = {"job", "instance"}

Input = dict[str, str]


async def run(*command: str) -> str:
    """The output of a program, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


def rules(file: Path = RULES) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(file.read_text())["groups"]
    return list(group["rules"])


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> dict[str, str]:
    """Of the dashboard and of the rules, with values in place of Grafana's variables."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5m")
            found[f"{panel['title']} {target['refId']}"] = re.sub(r"\$\w+", "x", text)
    return found


async def test_promtool_accepts_rules_and_configuration(tmp_path: Path) -> None:
    promtool = find_program("promtool")
    await run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    await run(promtool, "check", "config", "--lint=all", str(FOLDER / "prometheus.yml"))
    records = [
        {"record": f"checked:{number}", "expr": text}
        for number, text in enumerate(expressions().values())
    ]
    file = tmp_path / "expressions.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": records}]}))
    await run(promtool, "check", "rules", "--lint=none", str(file))


@pytest.mark.parametrize("where", expressions())
def test_expressions_are_about_series_and_labels_that_exist(where: str) -> None:
    text = expressions()[where]
    names = re.findall(r"\b(?:(?:gateway|process)_\w+|up\b)", text)
    assert names
    assert set(names) <= LABELS.keys()
    known = EVERYWHERE.union(*(LABELS[name] for name in names))
    for selector in re.findall(r"\{([^}]*)\}", text):
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector)) <= known
    for labels in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", text):
        assert {label.strip() for label in labels.split(",")} <= known


def test_every_series_is_on_the_dashboard() -> None:
    text = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    assert [family.name for family in FAMILIES if family.name not in text] == []


def test_legends_and_variables_name_labels_that_exist() -> None:
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(
                r"label_values\((\w+)(?:\{[^}]*\})?, (\w+)\)", variable["definition"]
            ).groups()  # type: ignore[union-attr]
            assert label in LABELS[series] | EVERYWHERE
    for panel in panels():
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= names
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in re.sub(r"\{[^}]*\}", "", target["expr"]) or any(
                    label in LABELS[name] for name in re.findall(r"\bgateway_\w+", target["expr"])
                )


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert max(x for x, _ in cells) < 24
    assert len(cells) == len(set(cells))


def test_alerts_say_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
    for text in re.findall(r"gateway (?:[a-z]+ ?)+(?:--[a-z]+)?", RULES.read_text()):
        if (command := named_command(text)) is not None:
            assert set(re.findall(r"--[a-z-]+", text)) <= options(COMMANDS[command])


async def test_alerts_of_replicas_name_what_there_is() -> None:
    promtool = find_program("promtool")
    await run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(REPLICA_RULES))
    (group,) = yaml.safe_load(REPLICA_RULES.read_text())["groups"]
    assert len(group["rules"]) == 5
    for rule in group["rules"]:
        assert set(re.findall(r"gateway_\w+", rule["expr"])) <= {*LABELS}, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}


def always(value: str) -> str:
    return f"{value}x180"


STARTS = "0 1 2 3" + " 3x180"
FIRING: dict[str, Input] = {
    "GatewayDown": {'up{job="gateway"}': always("0")},
    "GatewayRestarts": {'process_start_time_seconds{job="gateway"}': STARTS},
    "GatewayConfigInvalid": {"gateway_config_last_reload_successful": always("0")},
    "GatewayAccountAuthFailed": {'gateway_account_state{state="auth_failed"}': always("1")},
    "GatewayAccountCircuitOpen": {
        'gateway_account_state{state="circuit_open"}': "1 0 0 1 0 0 1 0 0 1 0 0 1 0 0 1" + " 1x20"
    },
    "GatewayChannelDown": {
        "gateway_channel_accounts_usable": always("0"),
        "gateway_channel_accounts": always("2"),
    },
    "GatewayErrorRate": {
        'gateway_requests_total{endpoint="/v1/messages",outcome="ok",status="2xx"}': "0+90x180",
        'gateway_requests_total{endpoint="/v1/messages",outcome="upstream_cut",status="2xx"}': (
            "0+3x180"
        ),
        'gateway_requests_total{endpoint="/v1/messages",outcome="rejected",status="5xx",'
        'code="no_available_accounts"}': "0+7x180",
        'gateway_requests_total{endpoint="/v1/messages",outcome="rejected",status="4xx"}': (
            "0+900x180"
        ),
        'gateway_requests_total{endpoint="/healthz",outcome="ok",status="2xx"}': "0+900x180",
    },
    "GatewaySlowFirstToken": {
        'gateway_time_to_first_token_seconds_bucket{model="m",le="8.0"}': "0+9x180",
        'gateway_time_to_first_token_seconds_bucket{model="m",le="15.0"}': "0+10x180",
        'gateway_time_to_first_token_seconds_bucket{model="m",le="+Inf"}': "0+10x180",
    },
    "GatewayLoopLag": {
        'gateway_event_loop_lag_seconds_bucket{le="0.1"}': "0+95x180",
        'gateway_event_loop_lag_seconds_bucket{le="0.5"}': "0+100x180",
        'gateway_event_loop_lag_seconds_bucket{le="+Inf"}': "0+100x180",
    },
    "GatewayBudgetNearlySpent": {'gateway_limit_used_ratio{limit="budget_day"}': always("0.8")},
    "GatewayBudgetSpent": {'gateway_limit_used_ratio{limit="budget_usd"}': always("1.02")},
    "GatewayLogUnwritten": {"gateway_log_unwritten_seconds": always("5.1")},
    "GatewayBodiesFull": {
        "gateway_bodies_bytes": always("95"),
        "gateway_bodies_limit_bytes": always("100"),
    },
    "GatewayFilesNearlyExhausted": {
        'process_open_fds{job="gateway"}': always("900"),
        'process_max_fds{job="gateway"}': always("1000"),
    },
    "GatewayMetricsFolded": {"gateway_metrics_folded_total": "0+1x180"},
    "GatewayReplicaLost": {'gateway_replicas{job="gateway",state="lost"}': always("1")},
    "GatewayDatabaseUnreachable": {"gateway_database_up": always("0")},
    "GatewaySharedUnreachable": {"gateway_shared_up": always("0")},
    "GatewayReplicaAbsent": {'gateway_replicas{state="absent"}': always("1")},
    "GatewayKeysUnconfirmed": {"gateway_key_changes_confirmed": always("0")},
}
QUIET: dict[str, Input] = {
    "GatewayDown": {'up{job="other"}': always("0"), 'up{job="gateway"}': always("1")},
    "GatewayRestarts": {'process_start_time_seconds{job="gateway"}': "0 1 2 2x180"},
    "GatewayConfigInvalid": {"gateway_config_last_reload_successful": always("1")},
    "GatewayAccountAuthFailed": {'gateway_account_state{state="disabled"}': always("1")},
    "GatewayAccountCircuitOpen": {'gateway_account_state{state="circuit_open"}': "0x100 1 0x80"},
    "GatewayChannelDown": {
        'gateway_channel_accounts_usable{channel="empty"}': always("0"),
        'gateway_channel_accounts{channel="empty"}': always("0"),
    },
    "GatewayErrorRate": {
        'gateway_requests_total{endpoint="/v1/messages",outcome="ok",status="2xx"}': "0+96x180",
        'gateway_requests_total{endpoint="/v1/messages",outcome="error",status="5xx"}': "0+4x180",
        'gateway_requests_total{endpoint="/v1/messages",outcome="error",status="4xx"}': "0+90x180",
        'gateway_requests_total{endpoint="/v1/messages",outcome="rejected",status="5xx",'
        'code="model_not_found"}': "0+90x180",
    },
    "GatewaySlowFirstToken": {
        'gateway_time_to_first_token_seconds_bucket{model="m",le="4.0"}': "0+99x180",
        'gateway_time_to_first_token_seconds_bucket{model="m",le="15.0"}': "0+100x180",
        'gateway_time_to_first_token_seconds_bucket{model="m",le="+Inf"}': "0+100x180",
    },
    "GatewayLoopLag": {
        'gateway_event_loop_lag_seconds_bucket{le="0.1"}': "0+1000x180",
        'gateway_event_loop_lag_seconds_bucket{le="0.5"}': "0+1001x180",
        'gateway_event_loop_lag_seconds_bucket{le="+Inf"}': "0+1001x180",
    },
    "GatewayBudgetNearlySpent": {
        'gateway_limit_used_ratio{limit="budget_day"}': always("0.79"),
        'gateway_limit_used_ratio{limit="budget"}': always("1"),
        'gateway_limit_used_ratio{limit="concurrent"}': always("0.9"),
    },
    "GatewayBudgetSpent": {
        'gateway_limit_used_ratio{limit="budget_day"}': always("0.99"),
        'gateway_limit_used_ratio{limit="requests_per_minute"}': always("1"),
    },
    "GatewayLogUnwritten": {"gateway_log_unwritten_seconds": always("4")},
    "GatewayBodiesFull": {
        "gateway_bodies_bytes": always("89"),
        "gateway_bodies_limit_bytes": always("100"),
    },
    "GatewayFilesNearlyExhausted": {
        'process_open_fds{job="gateway"}': always("700"),
        'process_max_fds{job="gateway"}': always("1000"),
    },
    "GatewayMetricsFolded": {"gateway_metrics_folded_total": always("7")},
    "GatewayReplicaLost": {
        'gateway_replicas{job="gateway",state="lost"}': always("0"),
        'gateway_replicas{job="gateway",state="living"}': always("3"),
    },
    "GatewayDatabaseUnreachable": {"gateway_database_up": always("1")},
    "GatewaySharedUnreachable": {"gateway_shared_up": always("1")},
    "GatewayReplicaAbsent": {'gateway_replicas{state="absent"}': always("0")},
    "GatewayKeysUnconfirmed": {"gateway_key_changes_confirmed": always("1")},
}


def alert_test(alert: str, series: Input, times: dict[str, bool]) -> dict[str, Any]:
    """`times`: whether it fires then. promtool names every label of an alert, so only the number
    of alerts is compared, by the series that Prometheus keeps about them."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": time,
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            for time, fires in times.items()
        ],
    }


@pytest.mark.slow("evaluates the rules over simulated hours")
@pytest.mark.processes
async def test_each_rule_fires_after_its_time_and_only_then(tmp_path: Path) -> None:
    promtool = find_program("promtool")
    files = (RULES, REPLICA_RULES)
    waits = {rule["alert"]: rule.get("for") for file in files for rule in rules(file)}
    names = list(waits)
    assert set(names) == FIRING.keys() == QUIET.keys()
    tests = []
    for name in names:
        fires = {"0m": waits[name] is None, "15m": True}
        if name in ("GatewayRestarts", "GatewayMetricsFolded"):
            fires = {"0m": False, "10m": True}
        tests.append(alert_test(name, FIRING[name], fires))
        tests.append(alert_test(name, QUIET[name], {"0m": False, "15m": False, "100m": False}))
    file = tmp_path / "tests.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": list(map(str, files)), "tests": tests}, sort_keys=False)
    )
    output = await run(promtool, "test", "rules", str(file))
    assert "SUCCESS" in output
