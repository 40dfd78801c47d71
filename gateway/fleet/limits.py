"""Limits of requests, tokens and running requests that all replicas have together.

One script acquires those of key, group and gateway on the server, or none; the end of a request is
sent without waiting for an answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from gateway.core.histogram import Histogram
from gateway.core.limits import Limits
from gateway.errors import TooManyRequests
from gateway.fleet.valkey.connection import Connection, Word, load_script
from gateway.fleet.valkey.errors import CommandFailed, SharedLost
from gateway.fleet.valkey.session import REJOIN_PERIOD, Entry, Session
from gateway.quota.limit_errors import (
    concurrency_exceeded,
    queued_behind,
    too_many_requests,
    too_many_tokens,
)
from gateway.quota.limits import Holder, HolderKind, LimitStatus, LimitStatuses

log = logging.getLogger(__name__)

ACQUIRE: Final = load_script("acquire", library="functions")
LEAVE: Final = load_script("leave", library="functions")

_ACQUIRED, _REJECTED, _UNKNOWN_SESSION, _JOINING = range(4)
_REQUESTS, _TOKENS, _CONCURRENT = 1, 2, 3

_LETTERS: Final = {HolderKind.KEY: "k", HolderKind.GROUP: "g", HolderKind.GATEWAY: "a"}
_MAX_NAME: Final = 64
_KEPT: Final = 20_000
"""Demands and figures that are kept, at most."""

_JOINING_PAUSE: Final = 0.01


class _Demand(NamedTuple):
    """The arguments of the script that requests of the same holders have in common. `holders` are
    those with shared limits, `keys` their bases on the server, `args` their limits."""

    all_holders: tuple[Holder, ...]
    holders: tuple[Holder, ...]
    keys: tuple[str, ...]
    args: tuple[Word, ...]
    minute_bases: tuple[tuple[str, bool, bool], ...]
    running_bases: tuple[str, ...]


class _Figures(NamedTuple):
    """The use of a holder's limits per minute by all replicas, and the loop's times at which all of
    it will have expired."""

    requests: int
    requests_until: float
    tokens: int
    tokens_until: float


class SharedReservation:
    """The part of the shared limits that a running request has. Only the first end counts."""

    __slots__ = ("_entry", "_session")

    def __init__(self, session: Session, entry: Entry) -> None:
        self._session, self._entry = session, entry

    def extend(self, tokens: int) -> None:
        """The request uses this number of tokens in total."""
        self._session.adjust(self._entry, tokens)

    def settle(self, tokens: int) -> None:
        """The request has ended, and has used this number of tokens in total."""
        self._session.adjust(self._entry, tokens, "end")

    def withdraw(self) -> None:
        """The request did not run: nothing of it counts."""
        self._session.adjust(self._entry, 0, "withdraw")


class Waiter:
    """A request that waits for a limit of all replicas, in the order of arrival."""

    __slots__ = ("arrival", "blocked_on", "entry", "session", "woken")

    def __init__(self) -> None:
        self.arrival = "0"
        self.blocked_on: int = 0
        """The number of the demand's holder, from 1; 0: none."""
        self.entry: Entry | None = None
        self.session = ""
        self.woken = asyncio.Event()


class SharedLimits:
    """`connection` is open."""

    def __init__(self, connection: Connection, name: str) -> None:
        """`name` is the replica's."""
        self.session = Session(connection, name)
        self._connection = connection
        self._demands: dict[int, _Demand] = {}
        self._figures: dict[str, _Figures] = {}
        self._waiters: dict[str, Waiter] = {}
        self._root = connection.root
        self._part: Callable[[Limits], Limits] | None = None
        self._lost_at: float | None = None
        self._lost_seconds = 0.0

    async def open(self) -> None:
        """Raises `SharedError`."""
        name = self.session.name
        self._loop = asyncio.get_running_loop()
        self._connection.subscribe(f"{self.session.keys[0]}:wake:{name}", self._wake)
        self._connection.on_lost.append(self._lost)
        self.session.on_joined.append(self._joined)
        await self.session.open()

    async def close(self) -> None:
        await self.session.close()

    def divide(self, part: Callable[[Limits], Limits] | None) -> None:
        """Admits only this part of all limits from now on; None: all of them."""
        self._part = part
        self._demands.clear()

    @property
    def is_divided(self) -> bool:
        return self._part is not None

    @property
    def answers(self) -> Histogram:
        return self._connection.answers

    @property
    def is_lost(self) -> bool:
        """Whether the server cannot be asked."""
        return not self._connection.is_up

    @property
    def is_in_force(self) -> bool:
        """Whether the server decides: it can be asked, and knows of this replica."""
        return self._lost_at is None

    @property
    def lost_seconds(self) -> float:
        """Returns for how long the server could not be asked, in all."""
        now = self._loop.time() if self._lost_at is not None else 0.0
        return self._lost_seconds + now - (self._lost_at or 0.0)

    def concerns(self, holders: tuple[Holder, ...]) -> bool:
        """Whether any of them has a limit that replicas share."""
        return bool(self._demand(holders).holders)

    async def acquire(
        self, holders: tuple[Holder, ...], tokens: int, waiter: Waiter | None = None
    ) -> SharedReservation:
        """Raises `TooManyRequests` or `TooManyTokens` as `Quota.acquire`, `SharedLost` where the
        server cannot say. A waiter is registered where it is rejected: call `leave` at its end."""
        demand, entry = self._demand(holders), None
        deadline = self._loop.time() + REJOIN_PERIOD + self._connection.server.timeout
        while True:
            if not self.session.is_joined:
                await self.session.joined()
            entry = self._entry(demand, waiter)
            status, now, *answer = await self._run(demand, entry, tokens, waiter)
            self.session.set_server_time(now)
            if status == _ACQUIRED:
                break
            if status == _REJECTED:
                raise self._rejected(demand, tokens, answer, waiter)
            if self._loop.time() > deadline:
                raise SharedLost("the replicas are not on the server again yet")
            if status == _UNKNOWN_SESSION:
                self.session.rejoin()
            else:
                await asyncio.sleep(_JOINING_PAUSE)
        self.session.begin(entry, now, tokens)
        self._keep_figures(demand, answer[2])
        if waiter is not None:
            self._forget(waiter)
        return SharedReservation(self.session, entry)

    def acquire_locally(self, holders: tuple[Holder, ...], tokens: int) -> SharedReservation:
        """Acquires for a request that was admitted while the server is lost: this is recorded here,
        and added to the server when it is back."""
        demand = self._demand(holders)
        entry = self._entry(demand, None)
        self.session.begin(entry, self.session.now(), tokens)
        return SharedReservation(self.session, entry)

    def leave(self, holders: tuple[Holder, ...], waiter: Waiter) -> None:
        """Remove a waiter from the server's queue."""
        demand, entry = self._demand(holders), waiter.entry
        if entry is not None and waiter.blocked_on and waiter.session == self.session.id:
            keys = (*self.session.keys, demand.keys[waiter.blocked_on - 1])
            self._connection.post_run(LEAVE, keys, (waiter.session, entry.id))
        self._forget(waiter)

    def limit_statuses(self, holders: tuple[Holder, ...]) -> LimitStatuses:
        """Returns statuses like `Quota`, but of all replicas, as the last answers stated them."""
        requests: list[LimitStatus] = []
        tokens: list[LimitStatus] = []
        now, demand = self._loop.time(), self._demand(holders)
        for base, holder in zip(demand.keys, demand.holders, strict=True):
            figures = self._figures.get(base, _NO_FIGURES)
            for limit, used, until, statuses in (
                (
                    holder.limits.requests_per_minute,
                    figures.requests,
                    figures.requests_until,
                    requests,
                ),
                (holder.limits.tokens_per_minute, figures.tokens, figures.tokens_until, tokens),
            ):
                if limit is not None:
                    used = used if until > now else 0
                    reset = max(0.0, until - now)
                    statuses.append(LimitStatus(limit, max(0, limit - used), reset))
        return LimitStatuses(
            min(requests, key=_headroom, default=None), min(tokens, key=_headroom, default=None)
        )

    def _lost(self, error: SharedLost) -> None:
        if self._lost_at is None:
            self._lost_at = self._loop.time()
            log.warning(
                "the server of shared limits is lost: %s; requests with limits are refused, or "
                "each replica has its share, as their groups say",
                error,
            )

    def _joined(self) -> None:
        if self._lost_at is not None:
            seconds = self._loop.time() - self._lost_at
            self._lost_at, self._lost_seconds = None, self._lost_seconds + seconds
            log.warning("limits are shared again, after %.1f s", seconds)

    async def _run(
        self, demand: _Demand, entry: Entry, tokens: int, waiter: Waiter | None
    ) -> list[Any]:
        session = self.session
        arrival: Word = "" if waiter is None else waiter.arrival
        queued_at = 0 if waiter is None else waiter.blocked_on
        words = (session.id, entry.id, tokens, arrival, queued_at, *demand.args)
        orphan = partial(self._take_back, demand, entry)
        try:
            answer: list[Any] = await self._connection.run(
                ACQUIRE, (*session.keys, *demand.keys), words, orphan
            )
        except SharedLost:
            session.withdraw(entry)  # nobody knows whether the server has run it
            raise
        except CommandFailed as error:
            raise SharedLost(f"the server cannot decide: {error}") from None
        return answer

    def _take_back(self, demand: _Demand, entry: Entry, answer: list[Any] | None) -> None:
        """The answer to a request that was cancelled meanwhile."""
        session = self.session
        if answer is None:
            session.withdraw(entry)
        elif answer[0] == _ACQUIRED:
            session.begin(entry, answer[1], 0)
            session.adjust(entry, 0, "withdraw")
        elif answer[0] == _REJECTED and answer[3]:
            keys = (*session.keys, demand.keys[answer[3] - 1])
            self._connection.post_run(LEAVE, keys, (session.id, entry.id))

    def _entry(self, demand: _Demand, waiter: Waiter | None) -> Entry:
        session = self.session
        if waiter is not None and waiter.entry is not None and waiter.session == session.id:
            return waiter.entry
        entry = Entry(session.new_id(), demand.keys, demand.minute_bases, demand.running_bases)
        if waiter is not None:
            self._forget(waiter)
            waiter.entry, waiter.session, waiter.blocked_on = entry, session.id, 0
            self._waiters[f"{session.id}|{entry.id}"] = waiter
        return entry

    def _forget(self, waiter: Waiter) -> None:
        if waiter.entry is not None:
            self._waiters.pop(f"{waiter.session}|{waiter.entry.id}", None)
            waiter.entry = None

    def _wake(self, channel: bytes, member: bytes) -> None:
        if (waiter := self._waiters.get(member.decode())) is not None:
            waiter.woken.set()

    def _rejected(
        self, demand: _Demand, tokens: int, answer: list[Any], waiter: Waiter | None
    ) -> TooManyRequests:
        arrival, blocked_on, figures, rejections = answer
        if waiter is not None:
            waiter.arrival, waiter.blocked_on = arrival.decode(), blocked_on
        self._keep_figures(demand, figures)
        number, kind, used, wait = max(rejections, key=itemgetter(3))
        holder = demand.holders[number - 1]
        error = _error(holder, kind, used, wait / 1e6, tokens)
        error.holder = holder.kind, holder.id
        return error

    def _keep_figures(self, demand: _Demand, figures: list[list[int]]) -> None:
        now, kept = self._loop.time(), self._figures
        if len(kept) > _KEPT:
            kept.clear()
        for base, (requests, requests_us, tokens, tokens_us) in zip(
            demand.keys, figures, strict=True
        ):
            kept[base] = _Figures(requests, now + requests_us / 1e6, tokens, now + tokens_us / 1e6)

    def _demand(self, holders: tuple[Holder, ...]) -> _Demand:
        if holders[-1].kind not in _LETTERS:  # these are of one request
            return self._new_demand(holders)
        demand = self._demands.get(id(holders))
        if demand is None or demand.all_holders is not holders:
            if len(self._demands) > _KEPT:
                self._demands.clear()
            demand = self._demands[id(holders)] = self._new_demand(holders)
        return demand

    def _new_demand(self, holders: tuple[Holder, ...]) -> _Demand:
        limited = tuple(each for each in holders if is_shared(each.limits))
        if (part := self._part) is not None:
            limited = tuple(Holder(h.kind, h.id, h.name, part(h.limits)) for h in limited)
        keys = tuple(map(self._base, limited))
        args: list[Word] = []
        minute: list[tuple[str, bool, bool]] = []
        running: list[str] = []
        for base, holder in zip(keys, limited, strict=True):
            limits = holder.limits
            counts = limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent
            args += ("" if each is None else each for each in counts)
            requests, tokens, concurrent = (each is not None for each in counts)
            if requests or tokens:
                minute.append((base, requests, tokens))
            if concurrent:
                running.append(base)
        return _Demand(holders, limited, keys, tuple(args), tuple(minute), tuple(running))

    def _base(self, holder: Holder) -> str:
        """The prefix of its keys on the server; a long or non-ASCII id becomes a digest."""
        id = holder.id
        if len(id) > _MAX_NAME or not id.isascii():
            digest = hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=16)
            id = f"#{digest.hexdigest()}"
        return f"{self._root}{_LETTERS[holder.kind]}:{id}"


def is_shared(limits: Limits) -> bool:
    """Whether it has a limit of requests or tokens per minute or of running requests."""
    return not (
        limits.requests_per_minute is None
        and limits.tokens_per_minute is None
        and limits.concurrent is None
    )


def _error(holder: Holder, kind: int, used: int, wait: float, tokens: int) -> TooManyRequests:
    limits, name = holder.limits, str(holder)
    if kind == _REQUESTS:
        requests = limits.requests_per_minute or 0
        return too_many_requests(name, requests, used, wait if requests else None)
    if kind == _TOKENS:
        most = limits.tokens_per_minute or 0
        return too_many_tokens(name, most, used, tokens, wait if tokens <= most else None)
    if kind == _CONCURRENT:
        return concurrency_exceeded(name, limits.concurrent or 0, used)
    return queued_behind(name, used, wait)


def _headroom(status: LimitStatus) -> tuple[int, int]:
    return status.remaining, status.limit


_NO_FIGURES: Final = _Figures(0, -math.inf, 0, -math.inf)
