"""The text of `/metrics`, made of the counted numbers by the Prometheus client library.

It runs in another thread than the event loop: some thousand series take some ten milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.core.histogram import Histogram
from gateway.core.limits import MICRO_PER_UNIT
from gateway.core.text import escape_unprintable
from gateway.telemetry.families import FAMILIES, Family
from gateway.telemetry.metrics import Labels, Metrics, Requests

Value = float | Histogram
Samples = Mapping[str, Iterable[tuple[Labels, Value]]]
"""The samples of each family, by its name."""

_MAX_LABEL: Final = 128
"""Characters of a label."""
_MAX_ACCEPT: Final = 1024
"""Characters of a header; Prometheus sends some 200."""


def render(metrics: Metrics, gauges: Samples, accept: str) -> tuple[bytes, str]:
    """The text and its content type, as the `accept` header of the request wants it. `gauges` are
    the families that `metrics` does not have."""
    registry = CollectorRegistry()
    registry.register(_Families({**gauges, **_counted(metrics)}))
    ProcessCollector(registry=registry)
    try:
        encode, content_type = choose_encoder(accept[:_MAX_ACCEPT])
    except (TypeError, ValueError):  # a version that is no number
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


class _Families(Collector):
    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            yield _metric(family, self._samples.get(family.name, ()))


def _metric(family: Family, samples: Iterable[tuple[Labels, Value]]) -> Metric:
    name, help, names = family.name, family.help, family.labels
    if family.kind == "histogram":
        histograms = HistogramMetricFamily(name, help, labels=names)
        for labels, value in samples:
            if isinstance(value, Histogram):
                histograms.add_metric(_texts(labels), _buckets(value), value.total)
        return histograms
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    numbers = kind(name, help, labels=names)
    for labels, value in samples:
        if not isinstance(value, Histogram):
            numbers.add_metric(_texts(labels), value)
    return numbers


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Returns the upper bounds, and how many are not above them."""
    bounds = (*map(floatToGoString, histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _texts(labels: Labels) -> list[str]:
    return [escape_unprintable(label[:_MAX_LABEL]) for label in labels]


def _counted(metrics: Metrics) -> Samples:
    samples: defaultdict[str, dict[Labels, Value]] = defaultdict(dict)
    _add_requests(samples, metrics)
    _add_latencies(samples, metrics)
    _add_keys(samples, metrics)
    samples["gateway_attempts_total"].update(
        (labels, attempts.count) for labels, attempts in metrics.attempts.rows()
    )
    samples["gateway_lost_proofs_total"].update(
        (labels, lost.count) for labels, lost in metrics.lost_proofs.rows()
    )
    samples["gateway_queue_wait_seconds"].update(metrics.waits.rows())
    samples["gateway_time_between_events_seconds"].update(metrics.intervals.rows())
    samples["gateway_upstream_time_to_first_token_seconds"].update(metrics.first_tokens.rows())
    samples["gateway_event_loop_lag_seconds"][()] = metrics.loop_lag
    samples["gateway_metrics_folded_total"].update(
        ((table,), count) for table, count in metrics.folded()
    )
    return {name: values.items() for name, values in samples.items()}


def _add_requests(samples: defaultdict[str, dict[Labels, Value]], metrics: Metrics) -> None:
    sums: defaultdict[tuple[str, Labels], float] = defaultdict(float)
    for labels, requests in metrics.requests.rows():
        endpoint, model, group = labels[0], labels[3], labels[4]
        samples["gateway_requests_total"][labels] = requests.count
        sums["gateway_request_bytes_total", (endpoint,)] += requests.bytes_in
        sums["gateway_response_bytes_total", (endpoint,)] += requests.bytes_out
        if requests.cost_micro:
            sums["gateway_units_total", (model, group)] += requests.cost_micro / MICRO_PER_UNIT
        if requests.usd_micro:
            sums["gateway_cost_usd_total", (model, group)] += requests.usd_micro / MICRO_PER_UNIT
        if requests.web_searches:
            sums["gateway_web_searches_total", (model, group)] += requests.web_searches
        for name, tokens in _token_classes(requests):
            if tokens:
                sums["gateway_tokens_total", (model, group, name)] += tokens
    for (family, labels), value in sums.items():
        samples[family][labels] = value


def _token_classes(requests: Requests) -> Iterator[tuple[str, int]]:
    """Yields the number of tokens by class; each token is in one class."""
    cached = requests.cache_read_tokens + requests.cache_write_tokens
    yield "input", max(0, requests.input_tokens - cached)
    yield "cache_read", requests.cache_read_tokens
    yield "cache_write", requests.cache_write_tokens
    yield "output", max(0, requests.output_tokens - requests.reasoning_tokens)
    yield "reasoning", requests.reasoning_tokens


def _add_latencies(samples: defaultdict[str, dict[Labels, Value]], metrics: Metrics) -> None:
    own_times: dict[Labels, Value] = samples["gateway_overhead_seconds"]
    for labels, latency in metrics.latencies.rows():
        endpoint, model, stream = labels
        samples["gateway_request_duration_seconds"][labels] = latency.duration
        if stream == "true":
            samples["gateway_time_to_first_token_seconds"][endpoint, model] = latency.first_token
        own = own_times.setdefault((endpoint,), Histogram(latency.own_time.bounds))
        if isinstance(own, Histogram):
            own.add(latency.own_time)


def _add_keys(samples: defaultdict[str, dict[Labels, Value]], metrics: Metrics) -> None:
    sums: defaultdict[tuple[str, Labels], float] = defaultdict(float)
    for labels, requests in metrics.keys.rows():
        key = labels[0]
        samples["gateway_key_requests_total"][labels] = requests.count
        sums["gateway_key_tokens_total", (key, "input")] += requests.input_tokens
        sums["gateway_key_tokens_total", (key, "output")] += requests.output_tokens
        sums["gateway_key_units_total", (key,)] += requests.cost_micro / MICRO_PER_UNIT
        sums["gateway_key_cost_usd_total", (key,)] += requests.usd_micro / MICRO_PER_UNIT
    for (family, labels), value in sums.items():
        samples[family][labels] = value
