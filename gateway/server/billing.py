"""What one exchange uses: expected when it begins, heard while it runs, billed when it ends.

It must not know the ledger, nor how replies travel.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.admission.access import Permit
from gateway.admission.queue import ResourceRequest
from gateway.core.events import Usage
from gateway.core.value import replace
from gateway.quota.limits import Lease
from gateway.quota.pricing import Price
from gateway.runtime import Snapshot
from gateway.store.records import UsageSource

_NO_USAGE = Usage()


class Bill(NamedTuple):
    """What an exchange comes to; `source` says who counted. `tokens` are what it used as far as
    anybody can tell, also where that is not billed."""

    usage: Usage
    source: UsageSource
    cost_micro: int
    tokens: int


class UsageMeter:
    """`permit` is set once it is known who asks, `tariff` once it is known that it costs: without
    one nothing is billed. `model` is an id of the catalog. `expected` are input tokens that are
    billed where nothing more will ever be known."""

    __slots__ = (
        "_accepted",
        "_input_tokens",
        "_is_final",
        "_output_chars",
        "_snapshot",
        "_started",
        "_usage",
        "lease",
        "model",
        "permit",
        "price",
    )

    def __init__(self, snapshot: Snapshot, started: int) -> None:
        """Of an exchange that began `at`, in Unix µs."""
        self._snapshot = snapshot
        self._started = started
        self._input_tokens = 0
        self.permit: Permit | None = None
        self.price: Price | None = None
        self.lease: Lease | None = None
        self.model: str | None = None
        self.start_attempt()

    def free_demand(self, permit: Permit, model: str) -> ResourceRequest:
        """What it needs to be let in where it costs nothing."""
        self.model = model
        return ResourceRequest(permit.holders, self._started, 0, 0)

    def demand(self, permit: Permit, model: str, expected: Usage) -> ResourceRequest:
        """The same where it is thought to use so much."""
        self.model, self._input_tokens = model, expected.input_tokens
        self.price = permit.price_by_id(self._snapshot.catalog, model)
        return ResourceRequest(
            permit.holders, self._started, expected.total_tokens, self.cost(expected)
        )

    @property
    def estimated_tokens(self) -> int:
        return self._input_tokens if self._bills_estimates else 0

    @property
    def estimated_micro(self) -> int:
        """What these cost."""
        return self.price.input_cost(self.estimated_tokens) if self.price is not None else 0

    @property
    def _bills_estimates(self) -> bool:
        return self._snapshot.config.money.bill_estimates

    def cost(self, usage: Usage) -> int:
        """In micro-units."""
        return self.price.cost(usage) if self.price is not None else 0

    def start_attempt(self) -> None:
        """An upstream is asked: what an earlier one told does not count."""
        self._accepted = self._is_final = False
        self._usage: Usage | None = None
        self._output_chars = 0

    def mark_accepted(self) -> None:
        """The upstream has begun to answer, so whatever it does costs."""
        self._accepted = True

    def record_usage(self, usage: Usage | None, output_chars: int, *, is_final: bool) -> None:
        """What a reply told of itself: `usage` so far, which is all where it has `counted`, and how
        many characters were heard of it."""
        self._usage, self._output_chars, self._is_final = usage, output_chars, is_final

    @property
    def final_usage(self) -> Usage | None:
        """What the upstream has counted, once it has."""
        return self._usage if self._is_final else None

    def final_bill(self, *, committed: bool, failed: bool) -> Bill:
        """Of an exchange that `failed` before it was `committed` nothing is billed but what the
        upstream itself says that it cost."""
        used, source = self._used(committed, failed)
        usage = used
        if source == "estimated" and not self._bills_estimates:
            usage, source = (
                (_NO_USAGE, "none") if self._usage is None else (self._usage, "upstream")
            )
        return Bill(usage, source, self.cost(usage), used.total_tokens)

    def _used(self, committed: bool, failed: bool) -> tuple[Usage, UsageSource]:
        told = self._usage
        if told is not None and self._is_final:
            return told, "upstream"
        if self.price is None or not (committed or (self._accepted and not failed)):
            return _NO_USAGE, "none"
        if not (committed or self._output_chars):
            return told or Usage(input_tokens=self._input_tokens), "estimated"
        guess = Usage.estimated(self._input_tokens, self._output_chars)
        if told is None or not told.input_tokens:
            return guess, "estimated"
        most = max(told.output_tokens, guess.output_tokens)
        return replace(told, output_tokens=most), "estimated"
