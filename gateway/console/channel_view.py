"""The health of channels and their accounts, for pages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.admin.accounts import Accounts, AccountView
from gateway.config.channel import Channel
from gateway.core.formats import Format
from gateway.routing.circuit_breaker import HealthState
from gateway.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """An account with one model. `ttft_us` is its recent time to first token, smoothed, in
    microseconds; `is_slow` is in comparison with the channel's other accounts."""

    status: AccountView
    ttft_us: int | None
    is_slow: bool

    @property
    def is_failing(self) -> bool:
        """Whether all attempts have failed, although the account counts as healthy."""
        status = self.status
        is_healthy = status.state is HealthState.HEALTHY
        return is_healthy and status.failed > 0 and not status.succeeded


@dataclass(frozen=True, slots=True)
class AccountHealth:
    """An account with every model that it was used for; one entry with the model None if unused."""

    name: str
    models: tuple[ModelHealth, ...]

    @property
    def in_flight(self) -> int:
        """Requests of all models."""
        return self.models[0].status.under_way

    @property
    def concurrency(self) -> int | None:
        return self.models[0].status.concurrency

    @property
    def is_disabled(self) -> bool:
        return any(model.status.state is HealthState.DISABLED for model in self.models)

    @property
    def is_healthy(self) -> bool:
        return all(model.status.state is HealthState.HEALTHY for model in self.models)


@dataclass(frozen=True, slots=True)
class ChannelHealth:
    """`models` are public ids; `succeeded` and `failed` count attempts since the start."""

    name: str
    format: Format
    models: tuple[str, ...]
    accounts: tuple[AccountHealth, ...]

    @property
    def unhealthy_count(self) -> int:
        """Accounts that are unhealthy with at least one model."""
        return sum(not account.is_healthy for account in self.accounts)

    @property
    def failing_since(self) -> int | None:
        """When attempts of an unhealthy account began to fail (Unix µs), the earliest time."""
        unhealthy = (account.models for account in self.accounts if not account.is_healthy)
        times = (model.status.failing_since for models in unhealthy for model in models)
        return min((time for time in times if time is not None), default=None)

    @property
    def is_failing(self) -> bool:
        """Whether all attempts have failed, although no account is unhealthy yet."""
        return self.failed > 0 and not self.succeeded

    @property
    def in_flight(self) -> int:
        return sum(account.in_flight for account in self.accounts)

    @property
    def succeeded(self) -> int:
        return sum(model.status.succeeded for account in self.accounts for model in account.models)

    @property
    def failed(self) -> int:
        return sum(model.status.failed for account in self.accounts for model in account.models)


def channel_health(runtime: Runtime, accounts: Accounts) -> list[ChannelHealth]:
    """Returns the health of channels in the order of the configuration; needs the running loop."""
    views = accounts.states()
    return [_channel(runtime, channel, views) for channel in runtime.config.channels]


def _channel(runtime: Runtime, channel: Channel, views: Sequence[AccountView]) -> ChannelHealth:
    now = asyncio.get_running_loop().time()
    refs = [(channel.name, account.name) for account in channel.accounts]
    models: dict[str, list[ModelHealth]] = {}
    for view in views:
        if view.channel == channel.name:
            ref, model = (view.channel, view.account), view.model or ""
            ttft = runtime.latency.smoothed(ref, model, now)
            is_slow = runtime.latency.is_slow(ref, refs, model, now)
            health = ModelHealth(view, None if ttft is None else round(ttft * 1e6), is_slow)
            models.setdefault(view.account, []).append(health)
    return ChannelHealth(
        name=channel.name,
        format=channel.format,
        models=tuple(channel.models),
        accounts=tuple(AccountHealth(name, tuple(rows)) for name, rows in models.items()),
    )
