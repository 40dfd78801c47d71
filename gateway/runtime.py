"""The one typed object behind the application's one key: everything a request needs.

It must not know HTTP messages; it only holds what was built at the start, and what of it a new
configuration has replaced.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from gateway.admission.access import Permit
from gateway.admission.key_origins import KeyOriginMonitor
from gateway.admission.queue import AdmissionQueue
from gateway.config import Account, Channel, Config
from gateway.core.limits import UNLIMITED, Limits
from gateway.quota.estimates import InputEstimates, OutputEstimates
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.routing.affinity import AffinityIndex
from gateway.routing.catalog import Catalog
from gateway.routing.circuit_breaker import HealthState
from gateway.routing.failure_policy import FailurePolicy, compile_rules
from gateway.routing.health import AccountRef, Health
from gateway.routing.latency import LatencyTracker
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.router import Router
from gateway.scheduler import DeadlineScheduler
from gateway.store.recorder import Recorder
from gateway.store.records import Token
from gateway.store.registry import Registry
from gateway.upstream.client import UpstreamClient
from gateway.upstream.redaction import Redactor
from gateway.wire.token_estimate import estimate_tokens


def unix_microseconds() -> int:
    return time.time_ns() // 1000


def new_request_id(now: int) -> str:
    """`req_` and 24 hex digits that sort by time; `now` is in unix microseconds."""
    return f"req_{now:014x}{random.getrandbits(40):010x}"  # a name, not a secret


@dataclass(slots=True, eq=False)
class Snapshot:
    """What one reading of the configuration came to. A request keeps to the one that it began with;
    connections of one that was replaced are closed when the last of its requests has ended."""

    config: Config
    catalog: Catalog
    router: Router
    failure_policy: FailurePolicy
    upstream: UpstreamClient
    redactor: Redactor
    hash: str
    gateway_holder: Holder
    """All clients together, as a holder of limits."""
    active_requests: int = 0

    @classmethod
    def from_config(cls, config: Config) -> Snapshot:
        """Inside the running loop, which the connections to upstreams belong to."""
        catalog = Catalog.of(config.models)
        return cls(
            config=config,
            catalog=catalog,
            router=Router(catalog, config.channels, config.families),
            failure_policy=FailurePolicy(compile_rules(config.rules)),
            upstream=UpstreamClient(config),
            redactor=Redactor.from_config(config),
            hash=blake2b(config.model_dump_json().encode(), digest_size=6).hexdigest(),
            gateway_holder=Holder(
                HolderKind.GATEWAY, "", "the gateway", _gateway_limits(config) or UNLIMITED
            ),
        )


@dataclass(slots=True)
class Runtime:
    """One running gateway. `now` gives unix microseconds, `chance` a number in [0, 1)."""

    current: Snapshot
    registry: Registry
    recorder: Recorder
    key_origins: KeyOriginMonitor
    quota: Quota = field(default_factory=Quota)
    input_estimates: InputEstimates = field(default_factory=lambda: InputEstimates(estimate_tokens))
    output_estimates: OutputEstimates = field(default_factory=OutputEstimates)
    health: Health = field(default_factory=Health)
    latency: LatencyTracker = field(default_factory=LatencyTracker)
    affinity_index: AffinityIndex = field(default_factory=AffinityIndex)
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    now: Callable[[], int] = unix_microseconds
    random_float: Callable[[], float] = random.random
    queue: AdmissionQueue = field(init=False)
    draining: bool = False
    """New requests are refused, running ones may end."""
    aborting: bool = False
    """Running ones are ended too."""
    active_requests: int = 0
    """Requests in progress."""
    bytes_in_flight: int = 0
    """Bytes of their bodies."""
    scheduler: DeadlineScheduler = field(default_factory=DeadlineScheduler)
    """The deadlines of what is waited for, and what a shutdown may end."""
    background_drains: set[asyncio.Future[None]] = field(default_factory=set)
    """Replies that are heard to their end although their clients have left."""
    loaded_at: int = field(default_factory=unix_microseconds)
    """When the configuration was last read and found right, in unix microseconds."""
    config_error: str | None = None
    """What is wrong with the file that was read since: for everybody, so it tells no content."""
    bad_paths: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often somebody asked where nothing is, by what the path began with and the user agent's
    product: their base address is a wrong one."""
    stream_only: set[tuple[str, str]] = field(default_factory=set)
    """Channels, and their names of models, that were found to answer streams alone."""
    _closing: set[asyncio.Future[None]] = field(default_factory=set)
    _permits: dict[str, Permit] = field(default_factory=dict)
    _permits_version: tuple[Snapshot | None, int] = (None, -1)

    def __post_init__(self) -> None:
        self.queue = AdmissionQueue(self.quota)

    @property
    def config(self) -> Config:
        return self.current.config

    def replace_config(self, config: Config) -> None:
        """What begins from now on goes by this configuration; what runs keeps to its own.

        Who is reached as before keeps what is known of them; another key or address is a new
        beginning, but whoever was disabled by hand stays so.
        """
        old, new = self.current, Snapshot.from_config(config)
        self.current = new
        before, now = _account_identities(old.config), _account_identities(config)
        self._retain({place for place, way in now.items() if before.get(place) == way}, set(now))
        self.affinity_index.set_headers(config.affinity.headers)
        if not old.active_requests:
            self._close_snapshot(old)

    def release(self, snapshot: Snapshot) -> None:
        """A request that kept to it has ended."""
        snapshot.active_requests -= 1
        if not snapshot.active_requests and snapshot is not self.current:
            self._close_snapshot(snapshot)

    async def close(self) -> None:
        """The end: no line stays open."""
        self.scheduler.close()
        self._close_snapshot(self.current)
        await asyncio.wait(self._closing)

    def permit(self, token: Token) -> Permit:
        """What its key may do now, from memory."""
        of = (self.current, self.registry.version)
        if self._permits_version != of:
            self._permits.clear()
            self._permits_version = of
        permit = self._permits.get(token.id)
        if permit is None or permit.token is not token:
            group, current = self.registry.group(token.group), self.current
            agents = current.config.user_agents
            permit = Permit.for_token(token, group, current.router, current.gateway_holder, agents)
            self._permits[token.id] = permit
        return permit

    def _retain(self, unchanged: set[AccountRef], all_refs: set[AccountRef]) -> None:
        now = asyncio.get_running_loop().time()
        disabled = [
            place
            for place in all_refs - unchanged
            if self.health.status(place, "", now).state is HealthState.DISABLED
        ]
        self.health.retain(unchanged)
        for place in disabled:
            self.health.disable(place)
        self.latency.retain(unchanged)
        channels = {channel for channel, _ in unchanged}
        self.stream_only = {each for each in self.stream_only if each[0] in channels}

    def _close_snapshot(self, snapshot: Snapshot) -> None:
        self._closing.add(task := asyncio.ensure_future(snapshot.upstream.close()))
        task.add_done_callback(self._closing.discard)


def _gateway_limits(config: Config) -> Limits:
    limits = config.limits
    return Limits(
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrent=limits.concurrent,
    )


def _account_identities(config: Config) -> dict[AccountRef, tuple[object, ...]]:
    """How each account is reached, and as whom."""
    return {
        (channel.name, account.name): _account_identity(channel, account)
        for channel in config.channels
        for account in channel.accounts
    }


def _account_identity(channel: Channel, account: Account) -> tuple[object, ...]:
    return channel.format, channel.base_url, channel.proxy, channel.headers, account.key
