"""What one exchange uses: reserved when it begins, measured while it runs, billed when it ends."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from decimal import Decimal
from sys import maxsize
from typing import Any, Final, NamedTuple

import orjson

from gateway.admission.access import Permit
from gateway.admission.local import Admission
from gateway.core.events import CHARS_PER_TOKEN, Usage
from gateway.core.limits import FREE, MICRO_PER_UNIT, UNLIMITED, Cost
from gateway.core.value import replace
from gateway.errors import AccountingUnavailable, InsufficientQuota
from gateway.quota.limits import Reservation, ResourceRequest
from gateway.quota.pricing import Part, Price, PriceBook
from gateway.runtime import Snapshot
from gateway.store.records import UsageSource
from gateway.wire.json.fields import Payload
from gateway.wire.service_tier import stated_tier

_NO_USAGE = Usage()

_UNKNOWN_TIER: Final = (None, "auto")

_MIN_SLICE: Final = 64
"""Output tokens that are reserved at a time for a reply that is longer than expected, at least."""

_SLICE_SHARE: Final = 4
"""A slice is a quarter of what the reply already has."""

_MAX_CHARS_PER_TOKEN: Final = 16
"""A reply with more characters for each token that the client allows has exceeded that limit; with
fewer it may just have long words, so that no estimate of it is above the limit."""


class Bill(NamedTuple):
    """`usage` is what is billed, `source` who counted it; `tokens` is the best estimate of what was
    used, billed or not."""

    usage: Usage
    source: UsageSource
    cost: Cost
    tokens: int


class UsageMeter:
    """`permit` is set after the authorization, `price` where the request costs something: without
    one nothing is billed. `model` is an id of the catalog. `estimated_tokens` are input tokens that
    are billed where the gateway stops before anything more is known, `estimated_cost` their cost.
    `reserved_chars` are characters of output for which enough is reserved.

    Where a reply takes several upstream requests, rounds, `earlier` is what those that have ended
    used, and `next_input` the input tokens of the one that is running, if any, at least. `summary`
    is what a request used that made the prompt shorter before.

    Where the price depends on the request, `confirmed_tier` is the service tier that the reply of
    the last upstream request states, and `tariff` the text of what applies. `receipt` says what
    each of several upstream requests has used and cost, as a JSON object, once there is a bill.
    """

    __slots__ = (
        *("_book", "_parts", "_requested_tier", "_summary_parts", "confirmed_tier", "tariff"),
        *("_bill", "_lost"),
        *("_earlier_is_exact", "_input_tokens", "_is_final", "_is_over_budget", "_most_output"),
        *("_output_chars", "_sent", "_snapshot", "_started", "_usage", "earlier", "estimated_cost"),
        *("estimated_tokens", "model", "next_input", "permit", "price", "reservation"),
        *("receipt", "reserved_chars", "summary"),
    )

    def __init__(self, snapshot: Snapshot, started: int) -> None:
        """`started` is when the exchange began, in unix microseconds."""
        self._snapshot = snapshot
        self._started = started
        self._input_tokens, self._most_output = 0, maxsize
        self.estimated_tokens, self.estimated_cost = 0, FREE
        self.permit: Permit | None = None
        self.price: Price | None = None
        self.reservation: Reservation | None = None
        self.model: str | None = None
        self.reserved_chars = maxsize
        self.summary: tuple[Usage, UsageSource] | None = None
        self._book: PriceBook | None = None
        self._summary_parts: list[Part] = []
        self._lost = FREE
        self.receipt: str | None = None
        self._requested_tier: str | None = None
        self.confirmed_tier: str | None = None
        self.tariff: str | None = None
        self.start_attempt()

    def entry_demand(self, permit: Permit) -> ResourceRequest:
        """Returns what the exchange takes of the limits before its body is read."""
        return ResourceRequest(permit.holders, self._started, 0, FREE)

    def free_demand(self, permit: Permit, model: str) -> ResourceRequest:
        """Returns what the exchange takes of the limits if it costs nothing."""
        self.model = model
        return ResourceRequest(permit.holders, self._started, 0, FREE)

    async def acquire_free(self, admission: Admission, permit: Permit, model: str) -> None:
        """Acquires the limits of a request that costs nothing: counting tokens, filling a cache.
        Raises what `Admission.acquire` raises."""
        demand = self.free_demand(permit, model)
        entry, self.reservation = self.reservation, None
        self.reservation = await admission.acquire(permit, demand, entry)

    def demand(
        self,
        permit: Permit,
        model: str,
        expected: Usage,
        max_output: int = 0,
        output_limit: int | None = None,
    ) -> ResourceRequest:
        """Returns what the exchange takes of the limits with an expected usage; a reply has
        `max_output` tokens at most, if any holder has a budget, and `output_limit` as the client
        wants it."""
        self.model, self._input_tokens = model, expected.input_tokens
        self.price = price = permit.price(self._snapshot.catalog, model, self._started)
        self._book, self.tariff = price.book if price else None, None
        if self._snapshot.config.money.bill_estimates:
            self.estimated_tokens = self._input_tokens
            self.estimated_cost = price.input_cost(self._input_tokens) if price else FREE
        cost = price.highest_cost(expected) if price else FREE
        tokens = expected.total_tokens
        if output_limit is not None:
            most = min(output_limit, max_output or output_limit)
            self._most_output = max(expected.output_tokens, most)
            tokens = min(tokens, expected.input_tokens + output_limit)
        if any(holder.limits is not UNLIMITED for holder in permit.holders):
            self.reserved_chars = self._chars_within(expected.output_tokens)
        max_cost = FREE
        if price and max_output > expected.output_tokens:
            max_cost = price.highest_cost(replace(expected, output_tokens=max_output))
        return ResourceRequest(permit.holders, self._started, tokens, cost, max_cost)

    def start_attempt(self) -> None:
        """Usage of an earlier attempt does not count."""
        self._sent = self._is_final = self._is_over_budget = False
        self._bill: Bill | None = None
        self._usage: Usage | None = None
        self.earlier: Usage | None = None
        self.next_input: int | None = None
        self._earlier_is_exact = False
        self._output_chars = 0
        self._parts: list[Part] = []

    def charge_at(self, channel: str, body: Payload) -> None:
        """The next request goes to this channel with this body. Call it before `start_attempt`."""
        if self._book is None or self.price is None or self.price.book is None:
            return
        self._book = self.price.book.channels.get(channel, self.price.book)
        self._requested_tier, self.confirmed_tier = stated_tier(body), None
        expected = self._part(Usage(input_tokens=self.estimated_tokens))
        self.estimated_cost, self.tariff = self.price.cost_of(expected)

    def mark_sent(self) -> None:
        """The upstream has the whole request, so from now on the attempt costs something."""
        self._sent = True

    def extend_reservation(
        self, admission: Admission, reported: Usage | None, output_chars: int, *, is_final: bool
    ) -> Coroutine[Any, Any, None] | None:
        """The reply has more than `reserved_chars`: reserves what it has used so far and, where the
        budgets have room for it, a slice of what may follow, unless the usage is final. Returns
        what has to be awaited for that, where this replica has to lease more of a budget.

        Raises `InsufficientQuota`; what was reserved before is billed."""
        if self.reservation is None:
            return None
        used = self._estimate(reported, output_chars)
        slice_ = max(_MIN_SLICE, used.output_tokens // _SLICE_SHARE)
        if used.output_tokens <= self._most_output:
            slice_ = min(slice_, self._most_output - used.output_tokens)
        if is_final and reported is not None:
            used, slice_ = reported, 0
        try:
            self._reserve(self.reservation, used, slice_, output_chars)
        except InsufficientQuota as error:
            if error.is_leased:
                return self._lease_more(admission, self.reservation, used, slice_, output_chars)
            self._is_over_budget = True
            raise
        return None

    def _reserve(
        self, reservation: Reservation, used: Usage, slice_: int, output_chars: int
    ) -> None:
        for more in (slice_, 0):
            try:
                reservation.extend(used.total_tokens + more, self._cost(used, more))
            except InsufficientQuota:
                if not more:
                    raise
            else:
                reserved = self._chars_within(used.output_tokens + more)
                self.reserved_chars = max(reserved, output_chars + more * CHARS_PER_TOKEN)
                return

    async def _lease_more(
        self,
        admission: Admission,
        reservation: Reservation,
        used: Usage,
        slice_: int,
        output_chars: int,
    ) -> None:
        costs = self._cost(used), self._cost(used, slice_)
        try:
            await admission.extend(reservation, used.total_tokens, *costs)
            self._reserve(reservation, used, slice_, output_chars)
        except InsufficientQuota:
            self._is_over_budget = True
            raise

    def _cost(self, used: Usage, slice_: int = 0) -> Cost:
        usage = replace(used, output_tokens=used.output_tokens + slice_)
        return self.price.highest_cost(usage, len(self._parts) + 1) if self.price else FREE

    def record_summary(self, usage: Usage, source: UsageSource) -> None:
        self.summary = usage, source
        self._summary_parts = self._part(usage)

    def record_rounds(self, used: Usage, *, is_exact: bool) -> None:
        """Records what the rounds that have ended used; no other has been sent. `is_exact`: by the
        upstreams' own counts."""
        self._parts = self._parts_of(used)
        self.earlier, self._earlier_is_exact, self.next_input = used, is_exact, None

    async def reserve_round(self, admission: Admission, used: Usage, input_tokens: int) -> bool:
        """Reserves what the rounds of a reply have used, and the next one is going to read. False
        where a budget has no room for it."""
        if self.reservation is None:
            return True
        expected = used + Usage(input_tokens=input_tokens)
        try:
            await admission.extend(self.reservation, expected.total_tokens, self._cost(expected))
        except (InsufficientQuota, AccountingUnavailable):
            return False
        return True

    def record_usage(
        self, usage: Usage | None, output_chars: int, *, is_final: bool, tier: str | None = None
    ) -> None:
        """Records what the upstream reported so far, the length of its output in characters, and
        the service tier that it stated. What a budget had no room for was not sent to the client,
        and is not charged."""
        if self._is_over_budget:
            output_chars = min(output_chars, self.reserved_chars)
        self.confirmed_tier = tier
        self._usage, self._output_chars, self._is_final = usage, output_chars, is_final

    @property
    def final_usage(self) -> Usage | None:
        """Returns what the upstream reported of the complete reply, unless it took several
        requests: that says nothing of the prompt's size."""
        is_alone = self.earlier is None and self.summary is None
        return self._usage if self._is_final and is_alone else None

    def record_loss(self, *, is_unanswered: bool) -> str | None:
        """Returns a receipt of an attempt that has failed before anything of its reply was sent, as
        a JSON object; None where it has cost nothing. `is_unanswered`: the upstream may have
        processed the request; for an error vendors charge nothing but what they report."""
        money, usage = self._snapshot.config.money, self._usage
        if self.earlier is not None:
            usage = self.earlier + (usage or _NO_USAGE)
        source = "upstream" if usage is not None and self._is_final else "estimated"
        if usage is None and self._sent and money.bill_estimates and is_unanswered:
            usage = Usage(input_tokens=self._input_tokens)
        if self.price is None or usage is None or usage == _NO_USAGE:
            return None
        cost, tariff = self.price.cost(usage), self.price.description
        if self._book is not None:
            cost, tariff = self.price.cost_of(self._parts_of(usage))
        charged = money.charge == "all"
        if charged:
            self._lost = Cost(self._lost.units + cost.units, self._lost.usd + cost.usd)
        counts = _counts(usage)
        costs = {"cost_micro": cost.units, "usd_micro": cost.usd}
        receipt = {"usage": counts, "source": source, **costs, "charged": charged}
        return orjson.dumps(receipt | {"tariff": tariff}).decode()

    @property
    def cost_in_usd(self) -> str | None:
        """Returns the dollars of a reply that has been read to its end; None where nothing has a
        price in dollars."""
        if self.price is None or (self.price.usd is None and self._book is None):
            return None
        self._bill = self.final_bill(committed=True, failed=False)
        return _dollars(self._bill.cost)

    def final_bill(self, *, committed: bool, failed: bool) -> Bill:
        """An exchange that `failed` before it was `committed` costs what the upstream itself
        reported, if anything."""
        if self._bill is not None and committed:
            return self._bill
        usage, source = used, _ = self._used(committed or self._is_over_budget, failed)
        if source == "estimated" and not self._snapshot.config.money.bill_estimates:
            known = self.earlier if self._earlier_is_exact else self._usage
            usage = known or _NO_USAGE
            source = "none" if known is None else "upstream"
        parts = self._parts_of(usage)
        if self.summary is not None:
            summary, summary_source = self.summary
            usage, used = usage + summary, used + summary
            source = summary_source if source != "estimated" else source
        cost = FREE
        if self.price is not None and self._book is None:
            cost = self.price.cost(usage)
        elif self.price is not None:
            requests = [*self._summary_parts, *parts]
            cost, self.tariff = self.price.cost_of(requests)
            self.receipt = _receipt_of(requests, self.price) if len(requests) > 1 else None
        if (lost := self._lost) != FREE and self.price is not None:
            if self._book is None:
                self.tariff = self.price.description
            cost = Cost(cost.units + lost.units, cost.usd + lost.usd)
            self.tariff = f"{self.tariff}; USD of failed attempts: {_dollars(lost)}"
        return Bill(usage, source, cost, used.total_tokens)

    def _used(self, committed: bool, failed: bool) -> tuple[Usage, UsageSource]:
        reported = self._usage
        if reported is not None and self._is_final:
            return reported, "upstream"
        if self.earlier is not None and self.price is not None:
            if self._earlier_is_exact and self.next_input is None:
                return self.earlier, "upstream"
            return self._estimate(reported, self._output_chars), "estimated"
        if self.price is None or not (committed or (self._sent and not failed)):
            return _NO_USAGE, "none"
        if not (committed or self._output_chars):
            return reported or Usage(input_tokens=self._input_tokens), "estimated"
        return self._estimate(reported, self._output_chars), "estimated"

    def _part(self, usage: Usage) -> list[Part]:
        """Returns what one upstream request used, where the price depends on it, else nothing."""
        if self._book is None:
            return []
        tier = self._requested_tier if self.confirmed_tier in _UNKNOWN_TIER else self.confirmed_tier
        return [Part(usage, self._book, tier, self._started)]

    def _parts_of(self, usage: Usage) -> list[Part]:
        """Returns what the upstream requests of the reply used of it: each has its own price."""
        if not self._parts:
            return self._part(usage)
        rest = usage - sum((part.usage for part in self._parts), _NO_USAGE)
        if rest is None:
            return self._part(usage)
        return self._parts if rest == _NO_USAGE else [*self._parts, *self._part(rest)]

    def _estimate(self, reported: Usage | None, output_chars: int) -> Usage:
        estimate = Usage.estimated(self._input_tokens, output_chars)
        if self._chars_within(most := self._most_output) >= output_chars:
            estimate = replace(estimate, output_tokens=min(estimate.output_tokens, most))
        if self.earlier is not None:
            reported = self.earlier + Usage(input_tokens=self.next_input or 0)
        if reported is None or not reported.input_tokens:
            return estimate
        output_tokens = max(reported.output_tokens, estimate.output_tokens)
        return replace(reported, output_tokens=output_tokens)

    def _chars_within(self, output_tokens: int) -> int:
        """Characters for which so many tokens are enough, as far as can be known."""
        is_limit = output_tokens == self._most_output
        return output_tokens * (_MAX_CHARS_PER_TOKEN if is_limit else CHARS_PER_TOKEN)


def _receipt_of(parts: Sequence[Part], price: Price) -> str:
    multipliers = price.description.partition(";")[0]
    requests = []
    for part in parts:
        dollars, text = part.usd()
        if not dollars:  # a search that has no price of its own
            continue
        cost = {"usd_micro": round(dollars * MICRO_PER_UNIT), "tariff": multipliers + text}
        requests.append({"usage": _counts(part.usage), **cost})
    return orjson.dumps({"requests": requests}).decode()


def _counts(usage: Usage) -> dict[str, int]:
    return {name: getattr(usage, name) for name in Usage.__annotations__}


def _dollars(cost: Cost) -> str:
    return format(Decimal(cost.usd) / MICRO_PER_UNIT, "f")
