"""What one exchange uses: expected when it begins, heard while it runs, billed when it ends.

It must not know the ledger, nor how replies travel.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.admission.permit import Permit
from gateway.admission.turns import Demand
from gateway.core.usage import Usage
from gateway.core.value import replace
from gateway.quota.limits import Lease
from gateway.quota.tariff import Tariff
from gateway.runtime import Snapshot
from gateway.store.records import UsageSource

_NOTHING = Usage()


class Bill(NamedTuple):
    """What an exchange comes to; `source` says who counted. `tokens` are what it used as far as
    anybody can tell, also where that is not billed."""

    usage: Usage
    source: UsageSource
    cost_micro: int
    tokens: int


class Meter:
    """`permit` is set once it is known who asks, `tariff` once it is known that it costs: without
    one nothing is billed. `model` is an id of the catalog. `expected` are input tokens that are
    billed where nothing more will ever be known."""

    __slots__ = (
        "_accepted",
        "_at",
        "_counted",
        "_input_tokens",
        "_said",
        "_snapshot",
        "_usage",
        "lease",
        "model",
        "permit",
        "tariff",
    )

    def __init__(self, snapshot: Snapshot, at: int) -> None:
        """Of an exchange that began `at`, in Unix µs."""
        self._snapshot = snapshot
        self._at = at
        self._input_tokens = 0
        self.permit: Permit | None = None
        self.tariff: Tariff | None = None
        self.lease: Lease | None = None
        self.model: str | None = None
        self.begin()

    def turn(self, permit: Permit, model: str) -> Demand:
        """What it needs to be let in where it costs nothing."""
        self.model = model
        return Demand(permit.holders, self._at, 0, 0)

    def demand(self, permit: Permit, model: str, expected: Usage) -> Demand:
        """The same where it is thought to use so much."""
        self.model, self._input_tokens = model, expected.input_tokens
        self.tariff = permit.price(self._snapshot.catalog, model)
        return Demand(permit.holders, self._at, expected.total_tokens, self.cost(expected))

    @property
    def expected(self) -> int:
        return self._input_tokens if self._estimates else 0

    @property
    def expected_micro(self) -> int:
        """What these cost."""
        return self.tariff.input_cost(self.expected) if self.tariff is not None else 0

    @property
    def _estimates(self) -> bool:
        return self._snapshot.config.money.bill_estimates

    def cost(self, usage: Usage) -> int:
        """In micro-units."""
        return self.tariff.cost(usage) if self.tariff is not None else 0

    def begin(self) -> None:
        """An upstream is asked: what an earlier one told does not count."""
        self._accepted = self._counted = False
        self._usage: Usage | None = None
        self._said = 0

    def accept(self) -> None:
        """The upstream has begun to answer, so whatever it does costs."""
        self._accepted = True

    def learn(self, usage: Usage | None, said: int, *, counted: bool) -> None:
        """What a reply told of itself: `usage` so far, which is all where it has `counted`, and how
        many characters were heard of it."""
        self._usage, self._said, self._counted = usage, said, counted

    @property
    def counted(self) -> Usage | None:
        """What the upstream has counted, once it has."""
        return self._usage if self._counted else None

    def bill(self, *, committed: bool, failed: bool) -> Bill:
        """Of an exchange that `failed` before it was `committed` nothing is billed but what the
        upstream itself says that it cost."""
        used, source = self._used(committed, failed)
        usage = used
        if source == "estimated" and not self._estimates:
            usage, source = (_NOTHING, "none") if self._usage is None else (self._usage, "upstream")
        return Bill(usage, source, self.cost(usage), used.total_tokens)

    def _used(self, committed: bool, failed: bool) -> tuple[Usage, UsageSource]:
        told = self._usage
        if told is not None and self._counted:
            return told, "upstream"
        if self.tariff is None or not (committed or (self._accepted and not failed)):
            return _NOTHING, "none"
        if not (committed or self._said):
            return told or Usage(input_tokens=self._input_tokens), "estimated"
        guess = Usage.guessed(self._input_tokens, self._said)
        if told is None or not told.input_tokens:
            return guess, "estimated"
        most = max(told.output_tokens, guess.output_tokens)
        return replace(told, output_tokens=most), "estimated"
