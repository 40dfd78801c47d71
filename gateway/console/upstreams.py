"""How channels and their accounts are, put together for people. It must not know pages, nor what
makes an account well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.admin.accounts import Accounts, AccountState
from gateway.config import Channel
from gateway.core.formats import Format
from gateway.routing.gate import State
from gateway.runtime import Runtime


@dataclass(frozen=True, slots=True)
class WithModel:
    """An account with one model. `pace_us` is how long it takes to a first event lately, smoothed,
    in microseconds; None where nobody knows. `is_slow` is beside the channel's other accounts."""

    now: AccountState
    pace_us: int | None
    is_slow: bool


@dataclass(frozen=True, slots=True)
class AccountHealth:
    """An account with every model that it was asked for; without any, with the model None."""

    name: str
    models: tuple[WithModel, ...]

    @property
    def under_way(self) -> int:
        """Requests with all models."""
        return self.models[0].now.under_way

    @property
    def concurrency(self) -> int | None:
        return self.models[0].now.concurrency

    @property
    def is_disabled(self) -> bool:
        return any(each.now.state is State.DISABLED for each in self.models)

    @property
    def is_well(self) -> bool:
        """With all models."""
        return all(each.now.state is State.OPEN for each in self.models)


@dataclass(frozen=True, slots=True)
class ChannelHealth:
    """A channel with its accounts; `models` are the public ids."""

    name: str
    format: Format
    models: tuple[str, ...]
    accounts: tuple[AccountHealth, ...]

    @property
    def unwell(self) -> int:
        """How many accounts are not well with some model."""
        return sum(not account.is_well for account in self.accounts)

    @property
    def under_way(self) -> int:
        return sum(account.under_way for account in self.accounts)

    @property
    def succeeded(self) -> int:
        """Attempts since the start."""
        return sum(each.now.succeeded for account in self.accounts for each in account.models)

    @property
    def failed(self) -> int:
        """Attempts since the start."""
        return sum(each.now.failed for account in self.accounts for each in account.models)


def channels(runtime: Runtime, accounts: Accounts) -> list[ChannelHealth]:
    """All of the current configuration, in its order; inside the running loop."""
    states = accounts.states()
    return [_channel(runtime, channel, states) for channel in runtime.config.channels]


def _channel(runtime: Runtime, channel: Channel, states: Sequence[AccountState]) -> ChannelHealth:
    now = asyncio.get_running_loop().time()
    pool = [(channel.name, account.name) for account in channel.accounts]

    def with_model(state: AccountState) -> WithModel:
        place, model = (state.channel, state.account), state.model or ""
        pace = runtime.paces.pace(place, model, now)
        slow = runtime.paces.slow(place, pool, model, now)
        return WithModel(state, None if pace is None else round(pace * 1e6), slow)

    by_account: dict[str, list[WithModel]] = {}
    for state in states:
        if state.channel == channel.name:
            by_account.setdefault(state.account, []).append(with_model(state))
    return ChannelHealth(
        name=channel.name,
        format=channel.format,
        models=tuple(channel.models),
        accounts=tuple(AccountHealth(name, tuple(each)) for name, each in by_account.items()),
    )
