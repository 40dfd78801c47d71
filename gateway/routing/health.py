"""How the accounts are: who may be asked, who is closed off for a while, and why.

It must not know who asks, nor calls that are no requests of a client's: those never report here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf, isinf
from typing import Final

from gateway.routing.gate import Gate, Standing, State, Thresholds
from gateway.routing.judgement import Effect, Verdict
from gateway.routing.retry_budget import Window

Place = tuple[str, str]
"""The names of a channel and of one of its accounts."""

WINDOW: Final = 30
"""Seconds over which the share of failures counts."""

_OPEN: Final = State.OPEN
_WELL: Final = Standing()
_LONGEST_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Report:
    """What people see of an account with a model; None stands for a model where none was asked
    for."""

    place: Place
    model: str | None
    standing: Standing
    error: str | None = None
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """The leave to ask once; it comes back with the outcome. A success proves nothing about what
    was closed after `since`: the request may have been under way."""

    record: _Record = field(repr=False)
    since: float = -inf


@dataclass(slots=True, eq=False)
class _Account:
    gate: Gate = field(default_factory=Gate)
    records: dict[str, _Record] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Record:
    """An account with one model."""

    account: _Account
    gate: Gate = field(default_factory=Gate)
    good: Window = field(default_factory=lambda: Window(WINDOW))
    bad: Window = field(default_factory=lambda: Window(WINDOW))
    in_a_row: int = 0
    succeeded: int = 0
    failed: int = 0
    error: str | None = None
    ordinary: Admission = field(init=False)

    def __post_init__(self) -> None:
        self.ordinary = Admission(self)

    def breaks(self, admission: Admission, now: float, thresholds: Thresholds) -> bool:
        """Whether one more failure is the last one that the account is allowed."""
        self.in_a_row += 1
        self.bad.add(now)
        bad = self.bad.count(now)
        ended = bad + self.good.count(now)
        return (
            self.gate.probe is admission
            or self.in_a_row >= thresholds.failures
            or (ended >= thresholds.least and bad >= thresholds.share * ended)
        )

    def recover(self) -> None:
        self.gate = Gate()
        self.good.clear()
        self.bad.clear()
        self.in_a_row = 0


class Health:
    """Times are monotonic, in seconds. A pool are the places that could serve a request, the best
    first: at least half of it may always be asked, and never nobody."""

    __slots__ = ("_accounts", "_thresholds")

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._thresholds = thresholds or Thresholds()
        self._accounts: dict[Place, _Account] = {}

    def usable(self, pool: Sequence[Place], model: str, now: float) -> Sequence[Place]:
        """Those of the pool that may be asked, in its order; behind them, as far as they are less
        than half of it, those of the others that come back the soonest. Who was disabled by hand
        does not belong to it."""
        for place in pool:
            if self._closed(place, model):
                break
        else:
            return pool
        times = [self._time(place, model, now) for place in pool]
        usable = [place for place, time in zip(pool, times, strict=True) if time == -inf]
        closed = sorted((time, index) for index, time in enumerate(times) if not isinf(time))
        lacking = (len(usable) + len(closed) + 1) // 2 - len(usable)
        return usable + [pool[index] for _, index in closed[: max(0, lacking)]]

    def soonest(self, pool: Sequence[Place], model: str, now: float) -> float | None:
        """Seconds until the first of the pool comes back; None where one is there already, or all
        are disabled."""
        soonest = min((self._time(place, model, now) for place in pool), default=inf)
        return None if isinf(soonest) else max(0.0, soonest - now)

    def standing(self, place: Place, model: str, now: float) -> Standing:
        gates = self._closed(place, model)
        return max(gates, key=lambda gate: gate.until).standing(now) if gates else _WELL

    def admit(
        self, place: Place, model: str, now: float, pool: Sequence[Place]
    ) -> Admission | None:
        """The leave to ask this one of the pool now, as its one probe where it is half open; None
        where it is closed off."""
        record = self._record(place, model)
        if record.account.gate.state is _OPEN and record.gate.state is _OPEN:
            return record.ordinary
        gates = (record.account.gate, record.gate)
        if not all(gate.admits(now) for gate in gates):
            return Admission(record, now) if place in self.usable(pool, model, now) else None
        admission = Admission(record, now)
        for gate in gates:
            gate.probe = admission if gate.state is not _OPEN else None
        return admission

    def succeeded(self, admission: Admission, now: float) -> None:
        """A reply is complete; of a probe it is enough that it has begun."""
        record = admission.record
        record.succeeded += 1
        record.in_a_row = 0
        record.good.add(now)
        if record.gate.state is not _OPEN and admission.since >= record.gate.since:
            record.recover()
        account = record.account
        if account.gate.state is not _OPEN and admission.since >= account.gate.since:
            account.gate = Gate()

    def failed(
        self, admission: Admission, verdict: Verdict, now: float, chance: float, said: str
    ) -> None:
        """An attempt has failed; `said` is the error as people may read it, `chance` in [0, 1)."""
        record, t = admission.record, self._thresholds
        if verdict.effect is not Effect.NONE:
            record.failed += 1
            record.error = said[:_LONGEST_ERROR]
        match verdict.effect:
            case Effect.BAN:
                record.account.gate.ban(admission, verdict, now, t)
            case Effect.COOL:
                record.gate.cool(admission, verdict, now, chance, t)
            case Effect.FAILURE:
                if record.breaks(admission, now, t):
                    record.gate.break_circuit(admission, verdict, now, t)
            case Effect.OPEN:
                record.gate.break_circuit(admission, verdict, now, t)
            case Effect.NONE:
                pass
        self.abandoned(admission)

    def abandoned(self, admission: Admission) -> None:
        """An attempt ended that tells nothing about the account: its client left, say."""
        for gate in (admission.record.gate, admission.record.account.gate):
            if gate.probe is admission:
                gate.probe = None

    def disable(self, place: Place) -> None:
        """By hand, until `enable`; what is under way goes on."""
        self._account(place).gate = Gate(State.DISABLED, inf, 0.0, inf, "disabled by hand")

    def enable(self, place: Place) -> None:
        self._account(place).gate = Gate()

    def reset(self, place: Place) -> None:
        """By hand: all is well, but it stays disabled."""
        account = self._account(place)
        if account.gate.state is not State.DISABLED:
            account.gate = Gate()
        for record in account.records.values():
            record.recover()

    def keep(self, places: Collection[Place]) -> None:
        """Forgets all others: the configuration has changed."""
        self._accounts = {p: account for p, account in self._accounts.items() if p in places}

    def snapshot(self, now: float) -> list[Report]:
        """All that were ever asked or disabled."""
        reports = []
        for place, account in self._accounts.items():
            if not account.records:
                reports.append(Report(place, None, account.gate.standing(now)))
            for model, each in account.records.items():
                standing = self.standing(place, model, now)
                reports.append(
                    Report(place, model, standing, each.error, each.succeeded, each.failed)
                )
        return reports

    def _account(self, place: Place) -> _Account:
        account = self._accounts.get(place)
        if account is None:
            account = self._accounts[place] = _Account()
        return account

    def _record(self, place: Place, model: str) -> _Record:
        account = self._account(place)
        record = account.records.get(model)
        if record is None:
            record = account.records[model] = _Record(account)
        return record

    def _closed(self, place: Place, model: str) -> Sequence[Gate]:
        """The gates on the way there that are not open."""
        account = self._accounts.get(place)
        if account is None:
            return ()
        record = account.records.get(model)
        if record is None:
            return () if account.gate.state is _OPEN else (account.gate,)
        if account.gate.state is _OPEN and record.gate.state is _OPEN:
            return ()
        return [gate for gate in (account.gate, record.gate) if gate.state is not _OPEN]

    def _time(self, place: Place, model: str, now: float) -> float:
        """When the place may be asked: -inf is at once, inf is never."""
        gates = self._closed(place, model)
        if all(gate.admits(now) for gate in gates):
            return -inf
        return max(gate.until for gate in gates)
