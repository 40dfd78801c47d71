"""Upstream accounts of the running gateway: their health, and changing and probing it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from math import isinf
from typing import Any

from gateway.admin.access.audit import Audit
from gateway.admin.access.permissions import current_actor
from gateway.admin.errors import UnknownAccount, UnknownModel
from gateway.config.channel import Account, Channel
from gateway.core.formats import Lane
from gateway.routing.catalog import build_target
from gateway.routing.circuit_breaker import AccountStatus, HealthState
from gateway.routing.health import AccountRef, HealthReport
from gateway.routing.router import Candidate
from gateway.runtime import Runtime
from gateway.store.settings import Disabling, add_disabled, remove_disabled

ProbeFn = Callable[[Candidate], Awaitable[Any]]
"""Sends one small request; the result is a dataclass with an `ok`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """An account with one model; `model` is None if it has had no request. `until` is when it will
    be available again, in Unix microseconds; None for now, and for never.

    The counts are since the start, `error` is the latest one; `failing_since` (Unix microseconds)
    is when attempts began to fail, None where the last one has succeeded. `under_way` counts
    requests in flight with all models, `concurrency` is their maximum. `disabled_at` (Unix
    microseconds) and `disabled_by` (the actor of the audit log) are those of an account that is
    disabled. `refuses` is what the upstream has refused of requests with the model, as the trait
    has it.
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
    failing_since: int | None
    under_way: int
    concurrency: int | None
    disabled_at: int | None
    disabled_by: str | None
    refuses: tuple[str, ...] = ()


class Accounts:
    """Operations on the accounts of the current configuration."""

    def __init__(self, runtime: Runtime, probe: ProbeFn, audit: Audit) -> None:
        self._runtime = runtime
        self._probe = probe
        self._audit = audit
        self._lock = asyncio.Lock()  # database and memory change together

    def states(self, only: AccountRef | None = None) -> list[AccountView]:
        """Returns the accounts in the order of the configuration; accounts without a request are
        healthy."""
        now = asyncio.get_running_loop().time()
        reports: dict[AccountRef, list[HealthReport]] = {}
        for report in self._runtime.health.snapshot(now):
            reports.setdefault(report.account_ref, []).append(report)
        return [
            self._describe(report, account, now)
            for channel, account in self._all()
            if only in (None, ref := (channel.name, account.name))
            for report in reports.get(ref) or [HealthReport(ref, None, AccountStatus())]
        ]

    def reset(self, ref: AccountRef) -> list[AccountView]:
        self._find(ref)
        self._runtime.health.reset(ref)
        return self.states(ref)

    async def disable(self, ref: AccountRef) -> list[AccountView]:
        """Disables an account until `enable`, over restarts and while the configuration does not
        have it; also if that cannot be stored: that raises, and the restart would enable it."""
        self._find(ref)
        self._runtime.health.disable(ref)
        async with self._lock:
            if ref not in self._runtime.disabled_accounts:
                disabling = Disabling(self._runtime.now(), current_actor().name)
                writer = self._audit.change("account.disable", "/".join(ref))
                await add_disabled(writer, ref, disabling)
                self._runtime.disabled_accounts[ref] = disabling
                self._runtime.health.disable(ref)  # another replica may have enabled it meanwhile
        return self.states(ref)

    async def enable(self, ref: AccountRef) -> list[AccountView]:
        self._find(ref)
        async with self._lock:
            if ref in self._runtime.disabled_accounts:
                await remove_disabled(self._audit.change("account.enable", "/".join(ref)), ref)
                self._runtime.disabled_accounts.pop(ref, None)
            self._runtime.health.enable(ref)
        return self.states(ref)

    async def probe(self, ref: AccountRef, model: str | None) -> dict[str, Any]:
        """The request and its result; a success resets the account. `model` is an id of the catalog
        or an alias, by default the channel's first."""
        candidate = self._candidate(ref, model)
        result = await self._probe(candidate)
        if result.ok:
            self._runtime.health.reset(ref)
        return {
            "channel": candidate.channel,
            "account": candidate.account,
            "model": candidate.model,
            "upstream_model": candidate.target.model,
            "format": candidate.format,
            **asdict(result),
        }

    def _all(self) -> Iterator[tuple[Channel, Account]]:
        for channel in self._runtime.config.channels:
            for account in channel.accounts:
                yield channel, account

    def _find(self, ref: AccountRef) -> tuple[Channel, Account]:
        for channel, account in self._all():
            if (channel.name, account.name) == ref:
                return channel, account
        raise UnknownAccount(*ref)

    def _describe(self, report: HealthReport, account: Account, now: float) -> AccountView:
        status = report.status
        left, since = status.until - now, report.failing_since
        disabling = self._runtime.disabled_accounts.get(report.account_ref)
        return AccountView(
            channel=report.account_ref[0],
            account=account.name,
            model=report.model,
            state=status.state,
            until=None if left <= 0 or isinf(left) else self._runtime.now() + round(left * 1e6),
            reason=status.reason or None,
            error=report.error,
            succeeded=report.succeeded,
            failed=report.failed,
            failing_since=None
            if since is None
            else self._runtime.now() - round((now - since) * 1e6),
            under_way=self._runtime.current.upstream.in_flight(report.account_ref),
            concurrency=account.concurrency,
            disabled_at=disabling and disabling.at,
            disabled_by=disabling and disabling.by,
            refuses=self._refused(report.account_ref[0], report.model),
        )

    def _refused(self, name: str, model: str | None) -> tuple[str, ...]:
        runtime = self._runtime
        if model is None or not runtime.refusals.values:
            return ()
        models = next(each.models for each in runtime.config.channels if each.name == name)
        upstream_model = name, models.get(model, model)
        return runtime.refusals.confirmed(upstream_model, runtime.now())

    def _candidate(self, ref: AccountRef, requested: str | None) -> Candidate:
        channel, account = self._find(ref)
        names = channel.models if requested is None else [requested]
        resolved = map(self._runtime.current.catalog.resolve, names)
        model = next((each for each in resolved if each and each.id in channel.models), None)
        if model is None:
            raise UnknownModel(channel.name, requested, tuple(channel.models))
        return Candidate(
            channel=channel.name,
            account=account.name,
            format=channel.format,
            lane=Lane.NATIVE,
            model=model.id,
            target=build_target(channel, account, model),
        )
