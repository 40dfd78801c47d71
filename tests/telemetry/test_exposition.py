"""The text of /metrics: parsed by the library's own parser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from gateway.store.records import AttemptRow, ExchangeState
from gateway.telemetry.exposition import render
from gateway.telemetry.families import FAMILIES
from gateway.telemetry.metrics import Metrics
from tests.telemetry.test_metrics import ATTEMPT, ROW, ended

ROOT = Path(__file__).resolve().parents[2]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
NAMES = {family.name for family in FAMILIES}


def values(text: str, name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for family in parse(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def rendered(metrics: Metrics, accept: str = "") -> str:
    return render(metrics, {}, accept)[0].decode()


def test_every_family_is_exposed_with_its_help() -> None:
    text = rendered(Metrics())
    for family in FAMILIES:
        assert f"# TYPE {family.name} {family.kind}\n" in text
        assert f"# HELP {family.name} {family.help}\n" in text
    assert "process_resident_memory_bytes" in text


def test_names_follow_the_conventions() -> None:
    assert len(NAMES) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith("gateway_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.help.endswith(".")
        if family.kind == "histogram":
            assert family.name.endswith("_seconds")


def test_tokens_are_in_one_class_each() -> None:
    metrics = Metrics()
    metrics.count(ended())
    text = rendered(metrics)
    classes = ("input", "cache_read", "cache_write", "output", "reasoning")
    tokens = {name: values(text, "gateway_tokens_total", **{"class": name}) for name in classes}
    assert tokens == {
        "input": [10],
        "cache_read": [60],
        "cache_write": [30],
        "output": [30],
        "reasoning": [20],
    }
    assert values(text, "gateway_units_total") == [7]
    assert values(text, "gateway_cost_usd_total") == [0.25]


def test_histograms_are_cumulative() -> None:
    metrics = Metrics()
    for seconds in (0.2, 2.0, 2000.0):
        metrics.count(ended(ROW._replace(total_us=round(seconds * 1e6))))
    text, name = rendered(metrics), "gateway_request_duration_seconds"
    buckets = values(text, f"{name}_bucket")
    assert buckets == sorted(buckets)
    assert values(text, f"{name}_bucket", le="0.25") == [1]
    assert values(text, f"{name}_bucket", le="600.0") == [2]
    assert values(text, f"{name}_bucket", le="+Inf") == values(text, f"{name}_count") == [3]
    assert values(text, f"{name}_sum") == pytest.approx([2002.2])


def test_openmetrics_where_the_reader_wants_it() -> None:
    metrics = Metrics()
    metrics.count(ended())
    body, content_type = render(metrics, {}, OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert {family.name for family in parse_openmetrics(body.decode())} >= {
        name.removesuffix("_total") for name in NAMES
    }
    assert render(metrics, {}, "text/html")[1].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
@pytest.mark.parametrize(
    "version",
    ["", "abc", "1.0.0é", "\udcff", "1.0.0\r\nx: y", "9" * 5000, "1." * 5000, "-1", "0.0.1"],
)
def test_no_version_that_is_asked_for_breaks_it(kind: str, version: str) -> None:
    body, content_type = render(Metrics(), {}, f"{kind};version={version}")
    assert b"gateway_draining" in body
    assert content_type.isprintable()
    assert content_type.isascii()
    assert len(content_type) < 1200


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nb", "a\r\nb", "\x00\x1b[31m", "\ud800", "\u202e", "x" * 100_000, ""]
)
def test_no_name_breaks_the_text(name: str, accept: str) -> None:
    metrics = Metrics()
    metrics.with_keys = True
    row = ROW._replace(group_name=name, catalog_model=name, token_id=name, format=name)
    metrics.count(ended(row, ATTEMPT._replace(channel=name, account=name, verdict=name)))
    text = rendered(metrics, accept)
    assert len(text) < 100_000
    assert not any(line.startswith(("a", "b", "x")) for line in text.splitlines())
    read = parse_openmetrics if accept else parse
    assert {family.name for family in read(text)} >= {name.removesuffix("_total") for name in NAMES}


def test_the_fullest_tables_are_rendered_in_bounded_time_and_size() -> None:
    metrics = Metrics()
    for number in range(20_000):
        row = ROW._replace(
            group_name=f"group-{number}",
            catalog_model=f"model-{number}",
            state=ExchangeState.OK,
        )
        attempt: AttemptRow = ATTEMPT._replace(channel=f"channel-{number}")
        metrics.count(ended(row, attempt)._replace(queue_seconds=1.0))
    started = time.perf_counter()
    text = rendered(metrics)
    assert time.perf_counter() - started < 5
    assert len(text) < 6_000_000


def test_the_documentation_lists_every_series() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    section = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    listed = [line for line in section.splitlines() if line.startswith("| `gateway_")]
    expected = []
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        expected.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    assert listed == expected
    samples = {each.split(" ")[2] for each in rendered(Metrics()).splitlines() if "# TYPE" in each}
    for name in samples - NAMES:
        assert f"`{name}`" in section
