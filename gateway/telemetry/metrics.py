"""The numbers behind `/metrics`: counted as requests end, with no object of a library.

`gateway.telemetry.exposition` turns them into text in another thread, while this one counts on:
what it copies of a table is consistent, two numbers of a row may be one request apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, NoReturn, TypeVar

from gateway.core.events import LOST
from gateway.core.histogram import Histogram
from gateway.errors import CONTENT_POLICY_CODE, GatewayError
from gateway.scheduler import running
from gateway.telemetry.observed_request import ObservedRequest, Observer

Labels = tuple[str, ...]
Row = TypeVar("Row")

OTHER: Final = "other"
"""The label of what has no row of its own."""

SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_TOKEN: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
OWN_TIME: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
WAITING: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
BETWEEN_EVENTS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
LAG: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds of buckets, in seconds."""

INTERVAL: Final = 0.1
"""Seconds between two measurements of the event loop."""

ENDPOINTS: Final = frozenset(
    {
        *("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"),
        *("/v1/responses/input_tokens", "/v1/responses/compact", "/v1/conversations"),
        *("/v1/embeddings", "/v1/rerank", "/v1/moderations", "/v1/audio/speech"),
        *("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/generations"),
        *("/v1/images/edits", "/v1/images/variations"),
        *("/v1/models", "/v1/model/info", "/model/info", "/healthz", "/readyz", "/metrics", "/"),
    }
)
PATTERNS: Final = (
    ("/v1/models/", "/v1/models/{id}"),
    ("/v1/responses/", "/v1/responses/{id}"),
    ("/v1/conversations/", "/v1/conversations/{id}"),
)
"""The beginnings of paths, and their label."""

_STATUS_CLASSES: Final = {number: f"{number}xx" for number in range(1, 6)}
_REDUCIBLE: Final = (3, 4, 6)
"""Model, group and code: what is folded of the labels of requests."""


Families = dict[str, Mapping[Labels, float | Histogram]]
"""Metrics by the names of their families, and their labels."""


class Table(dict[Labels, Row]):
    """Rows by their labels, made when they are first read. Beyond `capacity` new labels are folded:
    those at the positions `reducible` become `other`; beyond twice the capacity all of them do.
    `folded` counts how often that happened."""

    __slots__ = ("_new", "_reducible", "capacity", "folded")

    def __init__(
        self, new: Callable[[], Row], capacity: int, reducible: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        self._new = new
        self._reducible = reducible
        self.capacity = capacity
        self.folded = 0

    def __missing__(self, labels: Labels) -> Row:
        if len(self) >= self.capacity:
            self.folded += 1
            labels = self._fold(labels)
            if labels in self:
                return self[labels]
        row = self[labels] = self._new()
        return row

    def _fold(self, labels: Labels) -> Labels:
        if self._reducible is None or len(self) >= 2 * self.capacity:
            return (OTHER,) * len(labels)
        pairs = enumerate(labels)
        return tuple(OTHER if index in self._reducible else label for index, label in pairs)

    def rows(self) -> list[tuple[Labels, Row]]:
        """Returns the rows; can be called in another thread."""
        return list(self.items())


class Requests:
    """Sums over requests with the same labels. `input_tokens` is the whole prompt, cached parts
    included, `output_tokens` has the reasoning; `cost_micro` is in micro-units, `usd_micro` in
    millionths of a dollar."""

    __slots__ = (
        *("bytes_in", "bytes_out", "cache_read_tokens", "cache_write_tokens", "cost_micro"),
        *("count", "input_tokens", "output_tokens", "reasoning_tokens", "usd_micro"),
        "web_searches",
    )

    def __init__(self) -> None:
        self.count = self.bytes_in = self.bytes_out = 0
        self.input_tokens = self.cache_read_tokens = self.cache_write_tokens = 0
        self.output_tokens = self.reasoning_tokens = 0
        self.cost_micro = self.usd_micro = self.web_searches = 0


class Latency:
    """The latency of requests with an attempt; `own_time` of requests with exactly one, as others
    may wait between attempts. `first_token` is empty if replies are not streamed."""

    __slots__ = ("duration", "first_token", "own_time")

    def __init__(self) -> None:
        self.duration = Histogram(SECONDS)
        self.first_token = Histogram(FIRST_TOKEN)
        self.own_time = Histogram(OWN_TIME)


class Attempts:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Metrics:
    """`observe` is an observer of exchanges: they are counted ten times per second, and by
    `count_ended`. One after the other, each finds the code and the rows in the processor's caches,
    which costs half of counting each at its end. `with_keys`: they are also counted by key.

    Labels of the tables: `requests` endpoint, client format, upstream format, model, group, status
    class, code, outcome; `latencies` endpoint, model, whether it is a stream; `waits` group;
    `attempts` channel, account, verdict; `lost_proofs` reason; `first_tokens` channel, model;
    `intervals` model; `keys` token id, outcome.
    """

    def __init__(self, *, with_keys: bool = False, capacity: int = 1000) -> None:
        self.with_keys = with_keys
        self.requests = Table(Requests, capacity, _REDUCIBLE)
        self.latencies = Table(Latency, capacity // 4, (1,))
        self.waits = Table(lambda: Histogram(WAITING), capacity // 4)
        self.attempts = Table(Attempts, capacity, (0, 1))
        self.first_tokens = Table(lambda: Histogram(FIRST_TOKEN), capacity // 4)
        self.intervals = Table(lambda: Histogram(BETWEEN_EVENTS), capacity // 4)
        self.keys = Table(Requests, capacity)
        self.lost_proofs = Table(Attempts, 8)
        self.loop_lag = Histogram(LAG)
        self._ended: list[ObservedRequest] = []
        self.observe: Observer = self._ended.append
        self._codes = {code: code for code in _all_codes()}

    def folded(self) -> Iterator[tuple[str, int]]:
        """Yields what each table has folded, by its name."""
        yield from (("requests", self.requests.folded), ("keys", self.keys.folded))
        yield from (("latencies", self.latencies.folded), ("attempts", self.attempts.folded))
        yield from (("waits", self.waits.folded), ("intervals", self.intervals.folded))
        yield "first_tokens", self.first_tokens.folded

    def count_ended(self) -> None:
        """Counts what has ended since the last call."""
        for ended in self._ended:
            self.count(ended)
            if (dropped := ended.row.dropped) is not None and LOST in dropped:
                self._count_lost_proofs(dropped)
        self._ended.clear()

    def _count_lost_proofs(self, dropped: str) -> None:
        for name in dropped.split(", "):
            if name.startswith(LOST):
                self.lost_proofs[name.removeprefix(LOST),].count += 1

    def count(self, ended: ObservedRequest) -> None:
        """The hot path, with `count_ended`."""
        row = ended.row
        endpoint = row.endpoint
        if endpoint not in ENDPOINTS:
            endpoint = _endpoint_label(endpoint)
        model = row.catalog_model or (OTHER if row.model else "")
        group, code = row.group_name, row.error_code
        labels = (
            endpoint,
            row.format,
            row.upstream_format or "",
            model,
            group,
            _STATUS_CLASSES.get((row.status or 0) // 100, OTHER),
            self._codes.get(code, OTHER) if code else "",
            row.state._value_,
        )
        rows = [self.requests[labels]]
        if self.with_keys and row.token_id:
            rows.append(self.keys[row.token_id, row.state._value_])
        for sums in rows:
            sums.count += 1
            sums.bytes_in += row.bytes_in
            sums.bytes_out += row.bytes_out
            sums.web_searches += row.web_searches
            sums.input_tokens += row.input_tokens
            sums.cache_read_tokens += row.cache_read_tokens
            sums.cache_write_tokens += row.cache_write_tokens
            sums.output_tokens += row.output_tokens
            sums.reasoning_tokens += row.reasoning_tokens
            sums.cost_micro += row.cost_micro
            sums.usd_micro += row.usd_micro
        if ended.queue_seconds:
            self.waits[group,].observe(ended.queue_seconds)
        if not ended.attempts:
            return
        total, first = (row.total_us or 0) / 1e6, row.first_event_us
        latency = self.latencies[endpoint, model, "true" if row.stream else "false"]
        latency.duration.observe(total)
        if len(ended.attempts) == 1:
            others = ended.queue_seconds + ended.upload_seconds + ended.upstream_seconds
            latency.own_time.observe(total - others if total > others else 0.0)
        if first is not None and row.stream:
            latency.first_token.observe(first / 1e6)
        for attempt in ended.attempts:
            self.attempts[attempt.channel, attempt.account, attempt.verdict].count += 1
            if attempt.first_event_us is not None:
                first_tokens = self.first_tokens[attempt.channel, model]
                first_tokens.observe(attempt.first_event_us / 1e6)


def run_metrics(metrics: Callable[[], Metrics | None]) -> AbstractAsyncContextManager[None]:
    """Counts, during the block and while there are metrics, what has ended, and measures how late
    the event loop is."""
    return running(_run(metrics))


async def _run(metrics: Callable[[], Metrics | None]) -> NoReturn:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + INTERVAL
        await asyncio.sleep(INTERVAL)
        if (current := metrics()) is not None:
            current.loop_lag.observe(max(0.0, loop.time() - due))
            current.count_ended()


def _endpoint_label(path: str) -> str:
    return next((label for start, label in PATTERNS if path.startswith(start)), OTHER)


def _all_codes(cls: type[GatewayError] = GatewayError) -> Iterator[str]:
    """Yields the error codes of the gateway; an upstream's own are passed on in others."""
    yield CONTENT_POLICY_CODE
    for subclass in cls.__subclasses__():
        if subclass.code:
            yield subclass.code
        yield from _all_codes(subclass)
