"""Shares the health of accounts between replicas: each applies the changes that the others publish.

A replica decides by its own `Health`, in memory. Changes of its breakers are published to Valkey in
the background, where the newest by the server's clock wins, and read by the others. Only a request
that tests a half-open account waits for the server: it has to get the claim, which one replica has
at a time. Without the server each replica uses only what it observes itself.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from math import isinf
from typing import Any, Final, NamedTuple

import orjson

from gateway.config.schema import Config
from gateway.fleet.valkey.connection import Connection, Word, load_script
from gateway.fleet.valkey.errors import SharedError
from gateway.routing.account_identity import account_identities
from gateway.routing.circuit_breaker import BreakerState, HealthState
from gateway.routing.health import (
    AccountRef,
    BreakerChange,
    BreakerKey,
    Health,
    HealthTicket,
)
from gateway.scheduler import running

POLL: Final = 0.5
"""Seconds between two polls, in case a message of the channel was lost."""
CLAIM_TTL: Final = 10.0
"""Seconds after which a claim that is not renewed ends."""

_RENEW_EVERY: Final = 2.0
_CLAIM_PAUSE: Final = 1.0
"""Seconds until a replica asks again for a claim that another one has."""
_MIN_INTERVAL: Final = 0.02
"""Seconds between two exchanges with the server, at least."""
_PAGE: Final = 500
_MAX_BREAKERS: Final = 20_000
"""Breakers that the server keeps: those that changed last."""
_MAX_REASON: Final = 200
_MAX_CLAIM_TRIES: Final = 3

_SAME: Final = 0.5
"""Seconds by which times of a breaker may differ and still be those that this replica sent."""
_NOTHING_SENT: Final[Mapping[str, BreakerChange]] = {}

_PUBLISH: Final = load_script("health_publish")
_CHANGES: Final = load_script("health_changes")
_CLAIM: Final = load_script("health_claim")
_RENEW: Final = load_script("health_renew")

log = logging.getLogger(__name__)


class _Claim(NamedTuple):
    """The claims of one request; `keys` are their keys on the server."""

    owner: str
    keys: Sequence[str]


class SharedHealth:
    """`config` returns the configuration in force."""

    def __init__(
        self, connection: Connection, health: Health, config: Callable[[], Config]
    ) -> None:
        self._connection, self._health, self._config = connection, health, config
        root = connection.root
        self._names = f"{root}health", f"{root}health:order"
        self._channel = f"{root}health:changed"
        self._id = secrets.token_hex(8)
        self._numbers = count()
        self._generation = b""
        self._known = 0
        self._seen: dict[str, int] = {}
        self._pending: dict[str, BreakerChange] = {}
        self._claims: dict[HealthTicket, _Claim] = {}
        self._ended: list[_Claim] = []
        self._renewed_at = 0.0
        self._identified: Config | None = None
        self._identities: dict[AccountRef, str] = {}
        self._refs: dict[str, AccountRef] = {}
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._exchanging = asyncio.Lock()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Exchanges health for the time of the block."""
        health = self._health
        health.on_change, health.on_ticket_end = self._note, self._release
        async with running(self._exchange_forever()):
            try:
                yield
            finally:
                health.on_change = health.on_ticket_end = None

    async def confirm(
        self, ticket: HealthTicket, model: str, pool: Sequence[AccountRef]
    ) -> HealthTicket | None:
        """Claim the test of a half-open account for `ticket`: returns the ticket, if no other
        replica has the claim. Else the account is admitted again as one that is being tested
        elsewhere: returns the new ticket, or None if the account cannot be used."""
        ref = ticket.model_health.account.ref
        try:
            for _ in range(_MAX_CLAIM_TRIES):
                if not (tested := ticket.tested):
                    return ticket
                left = await self._claim(ticket, tested)
                if left == 0:
                    return ticket
                now = self._loop.time()
                if left > 0:
                    pause = min(left / 1000, _CLAIM_PAUSE)
                    self._health.claimed_elsewhere(ticket, now + pause)
                else:
                    await self._exchange()
                    self._health.record_abandoned(ticket)
                again = self._health.admit(ref, model, self._loop.time(), pool)
                if again is None:
                    return None
                ticket = again
        except SharedError:
            return ticket
        except BaseException:
            self._health.record_abandoned(ticket)
            raise
        self._health.record_abandoned(ticket)
        return None

    async def _claim(self, ticket: HealthTicket, tested: Sequence[BreakerKey]) -> int:
        """The answer of `health_claim.lua`: 0 claimed, -1 newer state exists, else milliseconds."""
        if self._pending:
            await self._exchange()
        fields = [field for each in tested if (field := self._field(each)) is not None]
        owner = self._unique()
        claim = _Claim(owner, [f"{self._connection.root}health:claim:{field}" for field in fields])
        args: list[Word] = [owner, round(CLAIM_TTL * 1000)]
        for field in fields:
            args += field, self._seen.get(field, 0)
        self._claims[ticket] = claim
        try:
            left = int(await self._connection.run(_CLAIM, [self._names[0], *claim.keys], args))
        except BaseException:
            self._release(ticket)  # the server may have it
            raise
        if left != 0:
            del self._claims[ticket]
        return left

    def _unique(self) -> str:
        """Return the name of a claim, or of a generation: one that this replica has named before
        would not tell it that the server has forgotten everything since."""
        return f"{self._id}:{next(self._numbers)}"

    def _note(self, change: BreakerChange) -> None:
        if (field := self._field(change.key)) is None:
            return
        before = self._pending.get(field)
        if before is not None and before.decides:
            change = change._replace(decides=True)
        self._pending[field] = change
        self._wake.set()

    def _release(self, ticket: HealthTicket) -> None:
        if (claim := self._claims.pop(ticket, None)) is not None:
            self._ended.append(claim)
            self._wake.set()

    def _field(self, key: BreakerKey) -> str | None:
        """Returns the field of a breaker; None for an account that the configuration no longer
        has."""
        self._identify()
        identity = self._identities.get(key.account_ref)
        if identity is None:
            return None
        return identity if key.model is None else f"{identity}:{key.model}"

    def _identify(self) -> None:
        config = self._config()
        if config is not self._identified:
            self._identified = config
            self._identities = account_identities(config)
            self._refs = {identity: ref for ref, identity in self._identities.items()}
            self._known, self._seen = 0, {}  # what others know of new accounts

    async def _exchange_forever(self) -> None:
        self._connection.on_back.append(self._wake.set)
        self._connection.subscribe(self._channel, self._changed, self._wake.set)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._exchange()
            except SharedError:
                await asyncio.sleep(POLL / 5)  # the connection itself tells of it
            except Exception:  # the next round tries again
                log.exception("the health of accounts could not be shared")
                await asyncio.sleep(POLL)
            await asyncio.sleep(_MIN_INTERVAL)

    def _changed(self, channel: bytes, message: bytes) -> None:
        if not message.isdigit() or int(message) > self._known:
            self._wake.set()

    async def _exchange(self) -> None:
        """Publish the local changes and read those of others. Raises `SharedError`."""
        async with self._exchanging:
            self._identify()
            if self._pending or self._ended:
                await self._publish()
            await self._read()
            if self._claims and self._loop.time() - self._renewed_at > _RENEW_EVERY:
                self._renew()

    async def _publish(self) -> None:
        changes, ended = self._pending, self._ended
        self._pending, self._ended = {}, []
        now = self._loop.time()
        text = orjson.dumps([_rendered(field, each, now) for field, each in changes.items()])
        keys = [*self._names, *(key for claim in ended for key in claim.keys)]
        owners = [claim.owner for claim in ended for _ in claim.keys]
        args: list[Word] = [self._channel, self._unique(), text, _MAX_BREAKERS, *owners]
        try:
            answer = await self._connection.run(_PUBLISH, keys, args)
        except BaseException:
            self._pending = changes | self._pending
            self._ended = ended + self._ended
            raise
        self._apply(answer, changes)

    async def _read(self) -> None:
        while True:
            args: list[Word] = [self._known, self._unique(), _PAGE]
            answer = await self._connection.run(_CHANGES, self._names, args)
            if answer[0] != self._generation:
                is_first, self._generation = not self._generation, answer[0]
                self._known, self._seen = 0, {}
                for key, state in () if is_first else self._health.states():
                    self._note(BreakerChange(key, state, state.since, decides=False))
                if self._pending:
                    await self._publish()
                continue
            records = self._apply(answer)
            self._known = max([self._known, *(record["v"] for record in records)])
            if len(records) < _PAGE:
                return

    def _apply(
        self, answer: Sequence[Any], sent: Mapping[str, BreakerChange] = _NOTHING_SENT
    ) -> list[dict[str, Any]]:
        """Apply the records of an answer, except those that are what this replica has `sent`, and
        return all of them."""
        now, server_now = self._loop.time(), int(answer[1])
        pairs = zip(answer[2::2], answer[3::2], strict=True)
        records = [(field.decode(), orjson.loads(text)) for field, text in pairs if text]
        for field, record in records:
            is_known = field not in sent and record["v"] <= self._seen.get(field, 0)
            if is_known or field in self._pending:  # what is written returns what holds
                continue
            self._seen[field] = record["v"]
            identity, _, model = field.partition(":")
            ref = self._refs.get(identity)
            if ref is None:
                continue
            key, state = BreakerKey(ref, model or None), _state(record, now, server_now)
            if field in sent and _is_same(sent[field].state, state):
                continue
            if self._health.apply(key, state):
                _log_applied(key, state, now)
        return [record for _, record in records]

    def _renew(self) -> None:
        self._renewed_at = self._loop.time()
        claims = list(self._claims.values())
        keys = [key for claim in claims for key in claim.keys]
        owners = [claim.owner for claim in claims for _ in claim.keys]
        self._connection.post_run(_RENEW, keys, [round(CLAIM_TTL * 1000), *owners])


def _rendered(field: str, change: BreakerChange, now: float) -> dict[str, Any]:
    """A change as `health_publish.lua` reads it; times in ms relative to now."""
    state, evidence = change.state, change.evidence_at
    is_healthy = state.state is HealthState.HEALTHY
    return {
        "f": field,
        "s": state.state.value,
        "a": 0 if is_healthy else _milliseconds(now - state.since),
        "u": 0 if is_healthy else _milliseconds(state.until - now),
        "d": state.seconds,
        "r": state.reason[:_MAX_REASON],
        "e": 0 if isinf(evidence) else _milliseconds(now - evidence),
        "x": change.decides,
    }


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _state(record: dict[str, Any], now: float, server_now: int) -> BreakerState:
    since = now - (server_now - record["a"]) / 1000
    until = now + (record["u"] - server_now) / 1000
    return BreakerState(HealthState(record["s"]), since, until, record["d"], record["r"])


def _is_same(sent: BreakerState, state: BreakerState) -> bool:
    if sent.state is HealthState.HEALTHY or sent.state is not state.state:
        return sent.state is state.state
    return abs(sent.since - state.since) < _SAME and abs(sent.until - state.until) < _SAME


def _log_applied(key: BreakerKey, state: BreakerState, now: float) -> None:
    name = "/".join(key.account_ref) + ("" if key.model is None else f" with {key.model}")
    if state.state is HealthState.HEALTHY:
        log.info("account %s is available again, as another replica says", name)
    elif state.until > now:
        text = "account %s is not used for %g s, as another replica says: %s (%s)"
        log.info(text, name, round(state.until - now, 1), state.state.value, state.reason)
