"""The state of a running gateway, shared by all requests."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Protocol, TypeVar

from gateway.admission.access import Permit
from gateway.admission.body_pool import BodyPool
from gateway.admission.budgets import budget_holders
from gateway.admission.dimensions import DistinctValues
from gateway.admission.key_origins import KeyOriginMonitor
from gateway.admission.local import Admission
from gateway.config.redaction import Redactor
from gateway.config.schema import Config
from gateway.core.limits import UNLIMITED, Limits
from gateway.quota.estimates import InputEstimates, OutputEstimates
from gateway.quota.limits import BudgetStatus, Holder, HolderKind, Quota
from gateway.replicas import Fleet
from gateway.routing.account_identity import account_identities
from gateway.routing.affinity import AffinityIndex
from gateway.routing.catalog import Catalog
from gateway.routing.circuit_breaker import HealthState
from gateway.routing.failure_policy import FailurePolicy
from gateway.routing.health import AccountRef, Health
from gateway.routing.latency import LatencyTracker
from gateway.routing.refusals import Refusals
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.router import Router
from gateway.scheduler import DeadlineScheduler
from gateway.store.log.recorder import Recorder
from gateway.store.records import Token
from gateway.store.registry import Registry
from gateway.store.responses import ResponseStore
from gateway.store.settings import Disabling
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.observed_request import BeginTrace, Observer
from gateway.turns import LoopTurns, Worker
from gateway.upstream.client import UpstreamClient
from gateway.upstream.turns import BulkTurns
from gateway.wire.prompt.recent_bodies import RecentBodies
from gateway.wire.token_estimate import estimate_tokens


def unix_microseconds() -> int:
    return time.time_ns() // 1000


def new_request_id(now: int) -> str:
    """`req_` and 24 hex digits that sort by time; `now` is in unix microseconds."""
    return f"req_{now:014x}{random.getrandbits(40):010x}"  # not a secret


@dataclass(slots=True)
class ConnectionCounts:
    """Connections of clients: open ones, those that were one too many or had to leave for another
    one, and malformed requests. `strangers`, the oldest first, have not shown a valid key."""

    open: int = 0
    refused: int = 0
    strangers: dict[Any, None] = field(default_factory=dict)
    malformed: int = 0


class Part(Protocol):
    async def close(self) -> None: ...


PartT = TypeVar("PartT", bound=Part)
OptionsT = TypeVar("OptionsT")


class Snapshot:
    """The objects that are built from one configuration. A request keeps the snapshot with which it
    started; connections of a replaced snapshot are closed after the last of its requests."""

    def __init__(self, config: Config, catalog: Catalog | None = None) -> None:
        """Call it in the running loop, which owns the upstream connections. `catalog` is that of
        the configuration, if there is one already."""
        self.config = config
        self.catalog = catalog or Catalog.of(config)
        self.router = Router(self.catalog, config.channels, config.families)
        self.failure_policy = FailurePolicy(config.rules)
        self.upstream = UpstreamClient(config)
        takes_credentials = (each.name for each in config.channels if each.auth == "client")
        self.client_channels = frozenset(takes_credentials)
        """The channels that get a client's own credential."""
        self.redactor = Redactor.from_config(config)
        self.hash = blake2b(config.model_dump_json().encode(), digest_size=6).hexdigest()
        limits = config.limits
        shared = Limits(
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            concurrent=limits.concurrent,
        )
        self.gateway_holder = Holder(HolderKind.GATEWAY, "", "the gateway", shared or UNLIMITED)
        self.max_bodies = max(config.server.max_bodies, 2 * config.server.max_body)
        """Bytes of the bodies of running requests."""
        self.active_requests = 0
        self._parts: dict[Callable[..., Part], Any] = {}

    def part(self, make: Callable[[OptionsT], PartT], options: OptionsT) -> PartT:
        """Return what an optional feature makes of its options: made at the first call, closed with
        the snapshot. Call it in the loop."""
        if make not in self._parts:
            self._parts[make] = make(options)
        part: PartT = self._parts[make]
        return part

    async def close(self) -> None:
        for part in (self.upstream, *self._parts.values()):
            await part.close()


@dataclass(slots=True)
class Runtime:
    """`now` returns unix microseconds, `random_float` a number in [0, 1)."""

    current: Snapshot
    registry: Registry
    recorder: Recorder
    key_origins: KeyOriginMonitor
    responses: ResponseStore
    quota: Quota
    admission: Admission
    fleet: Fleet
    now: Callable[[], int]
    health: Health = field(default_factory=Health)
    affinity_index: AffinityIndex = field(default_factory=AffinityIndex)
    input_estimates: InputEstimates = field(default_factory=lambda: InputEstimates(estimate_tokens))
    output_estimates: OutputEstimates = field(default_factory=OutputEstimates)
    latency: LatencyTracker = field(default_factory=LatencyTracker)
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    random_float: Callable[[], float] = random.random
    draining: bool = False
    """The gateway stops: requests can finish, and each connection has its last one."""
    aborting: bool = False
    """Running requests are aborted."""
    active_requests: int = 0
    bodies: BodyPool = field(default_factory=BodyPool)
    """The memory of their bodies."""
    recent_bodies: RecentBodies = field(default_factory=lambda: RecentBodies(token_hex(16)))
    """The newest ones, with what is known of them, for the next requests of conversations."""
    scheduler: DeadlineScheduler = field(default_factory=DeadlineScheduler)
    """Deadlines, and what a shutdown aborts."""
    bulk_turns: BulkTurns = field(default_factory=BulkTurns)
    """Taken by large bodies while they are received."""
    worker: Worker = field(default_factory=Worker)
    """Reads and translates large bodies."""
    loop_turns: LoopTurns = field(init=False)
    """Reading and translating bodies of the usual sizes."""
    operator_worker: Worker = field(default_factory=Worker)
    """The worker for what operators wait for, apart from what requests have queued."""
    background_drains: set[asyncio.Future[None]] = field(default_factory=set)
    """Replies that are read to their end after their clients have disconnected."""
    loaded_at: int = field(default_factory=unix_microseconds)
    """The last successful load of the configuration, in unix microseconds."""
    config_error: str | None = None
    """The error of a later load: public, so it has no file content."""
    disabled_accounts: dict[AccountRef, Disabling] = field(default_factory=dict)
    """The disabled accounts, also accounts that the configuration does not have now: they are
    disabled if they come back."""
    bad_paths: Counter[tuple[str, str]] = field(default_factory=Counter)
    """404s by path prefix and user agent, of clients with a wrong base address."""
    stream_only: set[tuple[str, str]] = field(default_factory=set)
    """(channel, upstream model) that only support streams."""
    plain_reasoning: set[tuple[str, str]] = field(default_factory=set)
    """(channel, upstream model) that have refused to encrypt reasoning."""
    refusals: Refusals = field(default_factory=Refusals)
    """What upstreams have refused of late."""
    distinct_values: DistinctValues = field(default_factory=DistinctValues)
    """The values of what requests state of themselves."""
    dimension_loading: asyncio.Future[None] | None = None
    """Done when it is known what end users and sessions have spent before the start."""
    open_streams: int = 0
    """Streamed replies that are being relayed."""
    client_connections: ConnectionCounts = field(default_factory=ConnectionCounts)
    metrics: Metrics | None = None
    """The metrics; None if they are off."""
    metrics_rendering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while their text is made."""
    begin_trace: BeginTrace | None = None
    """The function that begins a trace; None: traces are off."""
    prepare_snapshot: Callable[[Snapshot], None] | None = None
    """Called with each later snapshot before it serves requests."""
    observers: tuple[Observer, ...] = ()
    """Observers, each of which is told of every exchange that has ended; replace the tuple to
    change them."""
    _closing: set[asyncio.Future[None]] = field(default_factory=set)
    _permits: dict[str, Permit] = field(default_factory=dict)
    _permits_version: tuple[Snapshot | None, int] = (None, -1)

    def __post_init__(self) -> None:
        self.loop_turns = LoopTurns(self.worker)
        self.affinity_index.set_headers(self.config.affinity.headers)
        self._switch_metrics()

    @property
    def config(self) -> Config:
        return self.current.config

    def restore_disabled(self, disabled: dict[AccountRef, Disabling]) -> None:
        """Restores what an earlier process has disabled. Call it before any request."""
        self.disabled_accounts = disabled
        for ref in account_identities(self.config).keys() & disabled.keys():
            self.health.disable(ref)

    def replace_disabled(self, disabled: dict[AccountRef, Disabling]) -> None:
        """Replaces the disabled accounts by what all replicas have disabled now."""
        before, self.disabled_accounts = self.disabled_accounts, disabled
        refs = account_identities(self.config).keys()
        for ref in refs & (disabled.keys() - before.keys()):
            self.health.disable(ref)
        for ref in refs & (before.keys() - disabled.keys()):
            self.health.enable(ref)

    def replace_config(self, config: Config, catalog: Catalog | None = None) -> None:
        """Applies to new requests; running ones keep their snapshot. `catalog`: see `Snapshot`.

        Accounts with the same identity keep their state; one with another key or address is reset,
        except that it stays disabled.
        """
        old, new = self.current, Snapshot(config, catalog)
        if self.prepare_snapshot is not None:
            self.prepare_snapshot(new)
        self.current = new
        before, now = account_identities(old.config), account_identities(config)
        self._retain({ref for ref, same in now.items() if before.get(ref) == same}, set(now))
        self.affinity_index.set_headers(config.affinity.headers)
        self.recent_bodies.clear()
        self._switch_metrics()
        if not old.active_requests:
            self._close_snapshot(old)

    def release(self, snapshot: Snapshot) -> None:
        """A request with this snapshot has ended."""
        snapshot.active_requests -= 1
        if not snapshot.active_requests and snapshot is not self.current:
            self._close_snapshot(snapshot)

    async def close(self) -> None:
        """Closes all upstream connections."""
        self.scheduler.close()
        self.worker.close()
        self.operator_worker.close()
        self._close_snapshot(self.current)
        await asyncio.wait(self._closing)

    def budget_statuses(self) -> Iterator[BudgetStatus]:
        """Yields every budget of active keys and of groups, now; for metrics and alerts. It takes 1
        µs for a key and 1 µs for a budget."""
        return self.quota.budget_statuses(budget_holders(self.registry), self.now())

    def permit(self, token: Token) -> Permit:
        """The permissions of its key."""
        version = (self.current, self.registry.version)
        if self._permits_version != version:
            self._permits.clear()
            self._permits_version = version
        permit = self._permits.get(token.id)
        if permit is None or permit.token is not token:
            permit = self._permits[token.id] = self._new_permit(token)
        return permit

    def refusal(self, token: Token) -> str | None:
        """See `Permit.refusal`. The permit is not kept: all keys may be asked for."""
        return self._new_permit(token).refusal(self.quota, self.now())

    def _new_permit(self, token: Token) -> Permit:
        group, current = self.registry.group(token.group), self.current
        return Permit.for_token(
            token,
            group,
            current.router,
            current.gateway_holder,
            current.config.user_agents,
            stores_replies=current.config.responses.store,
            hash_key=current.config.logs.end_users.hash_secret,
        )

    def _switch_metrics(self) -> None:
        settings, metrics = self.config.metrics, self.metrics
        if settings.enabled and metrics is None:
            metrics = self.metrics = Metrics()
            self.observers = (*self.observers, metrics.observe)
        elif not settings.enabled and metrics is not None:
            self.metrics = None
            self.observers = tuple(each for each in self.observers if each != metrics.observe)
        if metrics is not None:
            metrics.with_keys = settings.keys

    def _retain(self, unchanged: set[AccountRef], all_refs: set[AccountRef]) -> None:
        now = asyncio.get_running_loop().time()
        disabled = [
            ref
            for ref in all_refs - unchanged
            if ref in self.disabled_accounts
            or self.health.status(ref, "", now).state is HealthState.DISABLED
        ]
        self.health.retain(unchanged)
        for ref in disabled:
            self.health.disable(ref)
        self.latency.retain(unchanged)
        self.refusals.retain(unchanged)
        channels = {channel for channel, _ in unchanged}
        for learned in (self.stream_only, self.plain_reasoning):
            learned -= {each for each in learned if each[0] not in channels}

    def _close_snapshot(self, snapshot: Snapshot) -> None:
        self._closing.add(task := asyncio.ensure_future(snapshot.close()))
        task.add_done_callback(self._closing.discard)
