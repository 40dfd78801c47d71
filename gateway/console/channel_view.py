"""How channels and their accounts are, put together for people. It must not know pages, nor what
makes an account well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.admin.accounts import Accounts, AccountView
from gateway.config import Channel
from gateway.core.formats import Format
from gateway.routing.circuit_breaker import HealthState
from gateway.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """An account with one model. `pace_us` is how long it takes to a first event lately, smoothed,
    in microseconds; None where nobody knows. `is_slow` is beside the channel's other accounts."""

    status: AccountView
    ttft_us: int | None
    is_slow: bool


@dataclass(frozen=True, slots=True)
class AccountHealth:
    """An account with every model that it was asked for; without any, with the model None."""

    name: str
    models: tuple[ModelHealth, ...]

    @property
    def in_flight(self) -> int:
        """Requests with all models."""
        return self.models[0].status.under_way

    @property
    def concurrency(self) -> int | None:
        return self.models[0].status.concurrency

    @property
    def is_disabled(self) -> bool:
        return any(each.status.state is HealthState.DISABLED for each in self.models)

    @property
    def is_healthy(self) -> bool:
        """With all models."""
        return all(each.status.state is HealthState.HEALTHY for each in self.models)


@dataclass(frozen=True, slots=True)
class ChannelHealth:
    """A channel with its accounts; `models` are the public ids."""

    name: str
    format: Format
    models: tuple[str, ...]
    accounts: tuple[AccountHealth, ...]

    @property
    def unhealthy_count(self) -> int:
        """How many accounts are not well with some model."""
        return sum(not account.is_healthy for account in self.accounts)

    @property
    def in_flight(self) -> int:
        return sum(account.in_flight for account in self.accounts)

    @property
    def succeeded(self) -> int:
        """Attempts since the start."""
        return sum(each.status.succeeded for account in self.accounts for each in account.models)

    @property
    def failed(self) -> int:
        """Attempts since the start."""
        return sum(each.status.failed for account in self.accounts for each in account.models)


def channel_health(runtime: Runtime, accounts: Accounts) -> list[ChannelHealth]:
    """All of the current configuration, in its order; inside the running loop."""
    states = accounts.states()
    return [_channel(runtime, channel, states) for channel in runtime.config.channels]


def _channel(runtime: Runtime, channel: Channel, states: Sequence[AccountView]) -> ChannelHealth:
    now = asyncio.get_running_loop().time()
    pool = [(channel.name, account.name) for account in channel.accounts]

    def with_model(state: AccountView) -> ModelHealth:
        place, model = (state.channel, state.account), state.model or ""
        pace = runtime.latency.smoothed(place, model, now)
        slow = runtime.latency.is_slow(place, pool, model, now)
        return ModelHealth(state, None if pace is None else round(pace * 1e6), slow)

    by_account: dict[str, list[ModelHealth]] = {}
    for state in states:
        if state.channel == channel.name:
            by_account.setdefault(state.account, []).append(with_model(state))
    return ChannelHealth(
        name=channel.name,
        format=channel.format,
        models=tuple(channel.models),
        accounts=tuple(AccountHealth(name, tuple(each)) for name, each in by_account.items()),
    )
