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

from gateway.admission.acquaintances import Acquaintances
from gateway.admission.permit import Permit
from gateway.admission.turns import Turns
from gateway.config import Account, Channel, Config
from gateway.core.limits import UNLIMITED, Limits
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.quota.output import Outputs
from gateway.routing.affinity import Affinities
from gateway.routing.catalog import Catalog
from gateway.routing.estimates import Estimates
from gateway.routing.gate import State
from gateway.routing.health import Health, Place
from gateway.routing.judgement import Judge
from gateway.routing.pace import Paces
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.router import Router
from gateway.routing.rules import rules_of
from gateway.scheduler import DeadlineScheduler
from gateway.store.recorder import Recorder
from gateway.store.records import Token
from gateway.store.registry import Registry
from gateway.upstream.client import UpstreamClient
from gateway.upstream.redaction import Redactor
from gateway.wire.estimate import estimate


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
    judge: Judge
    upstream: UpstreamClient
    redactor: Redactor
    hash: str
    house: Holder
    """All clients together, as a holder of limits."""
    requests: int = 0

    @classmethod
    def of(cls, config: Config) -> Snapshot:
        """Inside the running loop, which the connections to upstreams belong to."""
        catalog = Catalog.of(config.models)
        return cls(
            config=config,
            catalog=catalog,
            router=Router(catalog, config.channels, config.families),
            judge=Judge(rules_of(config.rules)),
            upstream=UpstreamClient(config),
            redactor=Redactor.of(config),
            hash=blake2b(config.model_dump_json().encode(), digest_size=6).hexdigest(),
            house=Holder(HolderKind.GATEWAY, "", "the gateway", _shared(config) or UNLIMITED),
        )


@dataclass(slots=True)
class Runtime:
    """One running gateway. `now` gives unix microseconds, `chance` a number in [0, 1)."""

    current: Snapshot
    registry: Registry
    recorder: Recorder
    acquaintances: Acquaintances
    quota: Quota = field(default_factory=Quota)
    estimates: Estimates = field(default_factory=lambda: Estimates(estimate))
    outputs: Outputs = field(default_factory=Outputs)
    health: Health = field(default_factory=Health)
    paces: Paces = field(default_factory=Paces)
    affinities: Affinities = field(default_factory=Affinities)
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    now: Callable[[], int] = unix_microseconds
    chance: Callable[[], float] = random.random
    turns: Turns = field(init=False)
    draining: bool = False
    """New requests are refused, running ones may end."""
    aborting: bool = False
    """Running ones are ended too."""
    running: int = 0
    """Requests in progress."""
    bytes_in_flight: int = 0
    """Bytes of their bodies."""
    scheduler: DeadlineScheduler = field(default_factory=DeadlineScheduler)
    """The deadlines of what is waited for, and what a shutdown may end."""
    drains: set[asyncio.Future[None]] = field(default_factory=set)
    """Replies that are heard to their end although their clients have left."""
    loaded_at: int = field(default_factory=unix_microseconds)
    """When the configuration was last read and found right, in unix microseconds."""
    refused: str | None = None
    """What is wrong with the file that was read since: for everybody, so it tells no content."""
    misdirected: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often somebody asked where nothing is, by what the path began with and the user agent's
    product: their base address is a wrong one."""
    stream_only: set[tuple[str, str]] = field(default_factory=set)
    """Channels, and their names of models, that were found to answer streams alone."""
    _closing: set[asyncio.Future[None]] = field(default_factory=set)
    _permits: dict[str, Permit] = field(default_factory=dict)
    _permits_of: tuple[Snapshot | None, int] = (None, -1)

    def __post_init__(self) -> None:
        self.turns = Turns(self.quota)

    @property
    def config(self) -> Config:
        return self.current.config

    def replace(self, config: Config) -> None:
        """What begins from now on goes by this configuration; what runs keeps to its own.

        Who is reached as before keeps what is known of them; another key or address is a new
        beginning, but whoever was disabled by hand stays so.
        """
        old, new = self.current, Snapshot.of(config)
        self.current = new
        before, now = _ways(old.config), _ways(config)
        self._keep({place for place, way in now.items() if before.get(place) == way}, set(now))
        self.affinities.heed(config.affinity.headers)
        if not old.requests:
            self._close(old)

    def leave(self, snapshot: Snapshot) -> None:
        """A request that kept to it has ended."""
        snapshot.requests -= 1
        if not snapshot.requests and snapshot is not self.current:
            self._close(snapshot)

    async def hang_up(self) -> None:
        """The end: no line stays open."""
        self.scheduler.close()
        self._close(self.current)
        await asyncio.wait(self._closing)

    def permit(self, token: Token) -> Permit:
        """What its key may do now, from memory."""
        of = (self.current, self.registry.version)
        if self._permits_of != of:
            self._permits.clear()
            self._permits_of = of
        permit = self._permits.get(token.id)
        if permit is None or permit.token is not token:
            group, current = self.registry.group(token.group), self.current
            agents = current.config.user_agents
            permit = Permit.of(token, group, current.router, current.house, agents)
            self._permits[token.id] = permit
        return permit

    def _keep(self, same: set[Place], all_places: set[Place]) -> None:
        now = asyncio.get_running_loop().time()
        disabled = [
            place
            for place in all_places - same
            if self.health.standing(place, "", now).state is State.DISABLED
        ]
        self.health.keep(same)
        for place in disabled:
            self.health.disable(place)
        self.paces.keep(same)
        channels = {channel for channel, _ in same}
        self.stream_only = {each for each in self.stream_only if each[0] in channels}

    def _close(self, snapshot: Snapshot) -> None:
        self._closing.add(task := asyncio.ensure_future(snapshot.upstream.close()))
        task.add_done_callback(self._closing.discard)


def _shared(config: Config) -> Limits:
    limits = config.limits
    return Limits(
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrent=limits.concurrent,
    )


def _ways(config: Config) -> dict[Place, tuple[object, ...]]:
    """How each account is reached, and as whom."""
    return {
        (channel.name, account.name): _way(channel, account)
        for channel in config.channels
        for account in channel.accounts
    }


def _way(channel: Channel, account: Account) -> tuple[object, ...]:
    return channel.format, channel.base_url, channel.proxy, channel.headers, account.key
