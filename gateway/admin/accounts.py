"""How the accounts of a running gateway are, and what an operator may do about it.

It must not know HTTP, nor how an account is asked: whoever opens this room brings the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from math import isinf
from typing import Any

from gateway.admin.errors import UnknownAccount, UnknownModel
from gateway.config import Account, Channel
from gateway.core.formats import Lane
from gateway.routing.catalog import build_target
from gateway.routing.circuit_breaker import AccountStatus, HealthState
from gateway.routing.health import AccountRef, HealthReport
from gateway.routing.router import Candidate
from gateway.runtime import Runtime

ProbeFn = Callable[[Candidate], Awaitable[Any]]
"""Sends one small request; what it returns has an `ok` and is what scripts read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """An account with one model, `model` being None until it was asked for any. `until` is when it
    may be asked again, in Unix microseconds; None where that is now, or never by itself.

    `error` is its last one, and the counts are since the start; `under_way` are the account's
    requests with all models, of which it may have `concurrency`.
    """

    channel: str
    account: str
    model: str | None
    state: HealthState
    until: int | None
    reason: str | None
    error: str | None
    succeeded: int
    failed: int
    under_way: int
    concurrency: int | None


class Accounts:
    """The operations on the accounts of whatever configuration is the current one."""

    def __init__(self, runtime: Runtime, try_: ProbeFn) -> None:
        self._runtime = runtime
        self._try = try_

    def states(self, only: AccountRef | None = None) -> list[AccountView]:
        """Of all accounts, in the order of the configuration; those of whom nothing is known are
        well."""
        now = asyncio.get_running_loop().time()
        reports: dict[AccountRef, list[HealthReport]] = {}
        for report in self._runtime.health.snapshot(now):
            reports.setdefault(report.account_ref, []).append(report)
        return [
            self._describe(report, account, now)
            for channel, account in self._all()
            if only in (None, place := (channel.name, account.name))
            for report in reports.get(place) or [HealthReport(place, None, AccountStatus())]
        ]

    def reset(self, place: AccountRef) -> list[AccountView]:
        self._require_account(place)
        self._runtime.health.reset(place)
        return self.states(place)

    def disable(self, place: AccountRef) -> list[AccountView]:
        self._require_account(place)
        self._runtime.health.disable(place)
        return self.states(place)

    def enable(self, place: AccountRef) -> list[AccountView]:
        self._require_account(place)
        self._runtime.health.enable(place)
        return self.states(place)

    async def probe(self, place: AccountRef, model: str | None) -> tuple[Candidate, Any]:
        """Who was asked, and what came of it; a success makes the account well. `model` is an id of
        the catalog or an alias; None: the channel's first."""
        candidate = self._candidate(place, model)
        tried = await self._try(candidate)
        if tried.ok:
            self._runtime.health.reset(place)
        return candidate, tried

    def _all(self) -> Iterator[tuple[Channel, Account]]:
        for channel in self._runtime.config.channels:
            for account in channel.accounts:
                yield channel, account

    def _require_account(self, place: AccountRef) -> tuple[Channel, Account]:
        for channel, account in self._all():
            if (channel.name, account.name) == place:
                return channel, account
        raise UnknownAccount(*place)

    def _describe(self, report: HealthReport, account: Account, now: float) -> AccountView:
        standing = report.status
        left = standing.until - now
        channel, name = report.account_ref
        return AccountView(
            channel=channel,
            account=name,
            model=report.model,
            state=standing.state,
            until=None if left <= 0 or isinf(left) else self._runtime.now() + round(left * 1e6),
            reason=standing.reason or None,
            error=report.error,
            succeeded=report.succeeded,
            failed=report.failed,
            under_way=self._runtime.current.upstream.in_flight(report.account_ref),
            concurrency=account.concurrency,
        )

    def _candidate(self, place: AccountRef, sent: str | None) -> Candidate:
        channel, account = self._require_account(place)
        catalog = self._runtime.current.catalog
        names = [sent] if sent is not None else list(channel.models)
        models = (model for name in names if (model := catalog.resolve(name)) is not None)
        model = next((each for each in models if each.id in channel.models), None)
        if model is None:
            raise UnknownModel(channel.name, sent, tuple(channel.models))
        return Candidate(
            channel=channel.name,
            account=account.name,
            format=channel.format,
            lane=Lane.NATIVE,
            model=model.id,
            target=build_target(channel, account, model),
        )
