"""What a check of accounts, budgets and the gateway itself has found."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.admin.units import format_units, format_usd
from gateway.admission.budgets import budget_holders
from gateway.config.channel import Channel
from gateway.config.monitoring import AlertKind, DiskFree, ErrorRate
from gateway.core.limits import MICRO_PER_UNIT, Currency
from gateway.core.text import NARROW_SPACE, escape_unprintable
from gateway.core.value import FastStrEnum
from gateway.quota.budgets import format_utc
from gateway.quota.limits import BudgetStatus
from gateway.routing.circuit_breaker import HealthState
from gateway.routing.failure_policy import NO_CREDENTIAL
from gateway.routing.health import AccountRef, HealthReport
from gateway.runtime import Runtime
from gateway.store.records import sanitize_text


class Severity(FastStrEnum):
    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SEVERITIES: Final = {
    AlertKind.ACCOUNT_AUTH_FAILED: Severity.CRITICAL,
    AlertKind.ACCOUNT_CIRCUIT_OPEN: Severity.WARNING,
    AlertKind.CHANNEL_DOWN: Severity.CRITICAL,
    AlertKind.BUDGET_USED: Severity.WARNING,
    AlertKind.ERROR_RATE: Severity.CRITICAL,
    AlertKind.CONFIG_INVALID: Severity.WARNING,
    AlertKind.DISK_LOW: Severity.CRITICAL,
    AlertKind.LOG_UNWRITABLE: Severity.CRITICAL,
    AlertKind.KEY_NEW_CLIENT: Severity.INFO,
    AlertKind.TEST: Severity.INFO,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`active` is None if nothing is known, or the value is between its two thresholds: then an
    alert that fires goes on, and none begins. `scope` identifies the condition within its kind,
    `subject` and `summary` are for people; without a summary, nothing is known of the present but
    that. `details` are JSON values."""

    kind: AlertKind
    scope: str
    active: bool | None
    subject: str = ""
    summary: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.kind} {self.scope}"


def exceeds(value: float, threshold: float, clear_below: float) -> bool | None:
    """Returns True from the threshold on, False below the other one, else None."""
    if value >= threshold:
        return True
    return False if value < clear_below else None


_MAX_ERROR: Final = 200
_MAX_MODELS: Final = 10
_MAX_ACCOUNTS: Final = 50

_SOCKET_NAME: Final = re.compile(r"\('[^']*', \d+(?:, \d+)*\)")
"""An address as Python writes it: ('127.0.0.1', 8080)."""
_USABLE: Final = (HealthState.HEALTHY, HealthState.RATE_LIMITED)


def account_conditions(runtime: Runtime, now: float) -> Iterator[Condition]:
    """Yields the conditions of all accounts and channels of the configuration; `now` is loop
    time."""
    reports: dict[AccountRef, list[HealthReport]] = {}
    for report in runtime.health.snapshot(now):
        reports.setdefault(report.account_ref, []).append(report)
    for channel in runtime.config.channels:
        for account in channel.accounts:
            found = reports.get((channel.name, account.name), ())
            kind = AlertKind.ACCOUNT_AUTH_FAILED
            yield _account(runtime, kind, channel.name, account.name, found)
            kind = AlertKind.ACCOUNT_CIRCUIT_OPEN
            yield _account(runtime, kind, channel.name, account.name, found)
        yield _channel(channel, reports)


def _account(
    runtime: Runtime,
    kind: AlertKind,
    channel: str,
    account: str,
    reports: Sequence[HealthReport],
) -> Condition:
    is_auth = kind is AlertKind.ACCOUNT_AUTH_FAILED
    state = HealthState.AUTH_FAILED if is_auth else HealthState.CIRCUIT_OPEN
    failed = [report for report in reports if report.status.state is state]
    name = f"{channel}/{account}"
    if not failed:
        is_due = any(report.status.state is HealthState.HALF_OPEN for report in reports)
        return Condition(kind, name, None if is_due or not reports else False)
    error = next((report.error for report in failed if report.error), "")
    reason = _public_error(runtime, failed[0].status.reason)
    what = "its credential was rejected, or its quota is used up" if is_auth else "fails too often"
    if reason.startswith(NO_CREDENTIAL):
        what = "its credential has expired"
    return Condition(
        kind,
        name,
        True,
        f"account {name}",
        f"Account {name} gets no requests: {what} ({reason}).",
        {
            "channel": channel,
            "account": account,
            "models": [report.model for report in failed if report.model][:_MAX_MODELS],
            "reason": reason,
            "error": _public_error(runtime, error),
        },
    )


def _public_error(runtime: Runtime, error: str) -> str:
    text = runtime.current.redactor.redact_all(_SOCKET_NAME.sub("[address]", sanitize_text(error)))
    return escape_unprintable(text[:_MAX_ERROR])


def _channel(channel: Channel, reports: dict[AccountRef, list[HealthReport]]) -> Condition:
    """Returns the condition of a channel: down if no account is usable with any model; accounts
    that were disabled by hand alone do not make it an alert."""
    kind, name = AlertKind.CHANNEL_DOWN, channel.name
    states = [
        {report.status.state for report in reports.get((name, account.name), ())}
        for account in channel.accounts
    ]
    if any(not state.isdisjoint(_USABLE) for state in states):
        return Condition(kind, name, False)
    if any(not state or HealthState.HALF_OPEN in state for state in states):
        return Condition(kind, name, None)
    if all(state == {HealthState.DISABLED} for state in states):
        return Condition(kind, name, False)
    return Condition(
        kind,
        name,
        True,
        f"channel {name}",
        f"Channel {name} is down: none of its accounts can be used.",
        {
            "channel": name,
            "accounts": {
                account.name: min(state)
                for account, state in list(zip(channel.accounts, states, strict=True))[
                    :_MAX_ACCOUNTS
                ]
            },
        },
    )


_BUDGET_MARGIN: Final = 5
"""Percentage points by which use has to fall before an alert is resolved: windows that slide would
flap."""
_HOLDERS_AT_ONCE: Final = 500
"""Keys that are checked before other tasks of the loop run."""


async def budget_conditions(runtime: Runtime, thresholds: tuple[int, ...]) -> list[Condition]:
    """A condition for each threshold (in percent) of each budget that has reached it, or nearly.
    Budgets with less use have none. Of several that are reached only the highest can begin an
    alert: lower ones that fire go on."""
    if not thresholds:
        return []
    found: list[Condition] = []
    at = runtime.now()
    for number, holder in enumerate(budget_holders(runtime.registry)):
        for status in runtime.quota.budget_statuses((holder,), at):
            if status.spent:
                found += _used_budget(status, thresholds)
        if number % _HOLDERS_AT_ONCE == _HOLDERS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return found


def _used_budget(status: BudgetStatus, thresholds: tuple[int, ...]) -> Iterator[Condition]:
    holder, name, limit = status.holder, status.budget.kind.name, status.budget.limit
    currency = status.budget.kind.currency
    percent = 100 * status.spent / limit if limit else 100.0
    reached = max((each for each in thresholds if percent >= each), default=None)
    for threshold in thresholds:
        active = exceeds(percent, threshold, threshold - _BUDGET_MARGIN)
        if active is False:
            continue
        if threshold != reached:
            active = None
        resets = format_utc(status.resets_at) if status.resets_at is not None else None
        amounts = [_amount(amount, currency) for amount in (status.spent, limit)]
        unit = "" if currency is Currency.USD else " units"
        yield Condition(
            AlertKind.BUDGET_USED,
            f"{holder.kind} {holder.id} {name} {threshold}",
            active,
            f"{holder}, {name}",
            f"{name} of {holder} is used to {percent:.0f} %: {' of '.join(amounts)}{unit}"
            + (f"; it resets at {resets}." if resets else "."),
            {
                holder.kind.value: holder.id,
                "budget": name,
                "threshold_percent": threshold,
                "used_percent": round(percent, 1),
                f"spent_{currency}": status.spent / MICRO_PER_UNIT,
                f"limit_{currency}": limit / MICRO_PER_UNIT,
                "resets_at": resets,
            },
        )


def _amount(micro: int, currency: Currency) -> str:
    """Formats an amount as `gateway budgets` does, in plain ASCII."""
    text = format_usd(micro) if currency is Currency.USD else format_units(micro)
    return text.replace(NARROW_SPACE, ",")


WRITE_DELAY: Final = 5.0
"""Seconds for which the request log may wait to be written."""

_ERROR_RATE_CLEARED: Final = 0.8
_DISK_CLEARED: Final = 1.1
"""The second thresholds, as shares of the first: the alert can be resolved there."""
_DISK_TIMEOUT: Final = 2.0


def gateway_conditions(runtime: Runtime) -> Iterator[Condition]:
    """The configuration file and the request log, where something is wrong with them."""
    error = runtime.config_error
    if error is not None:
        yield Condition(
            AlertKind.CONFIG_INVALID,
            "",
            True,
            "configuration file",
            f"The configuration file is invalid, the earlier one stays active: {error}.",
            {"error": error},
        )
    recorder = runtime.recorder
    waiting, seconds, spool = recorder.backlog, recorder.write_delay, recorder.spool
    if spool is not None and spool.seconds > WRITE_DELAY:
        waiting, seconds = spool.count, spool.seconds
        text = (
            f"The database server cannot be written: {waiting} entries wait in {spool.path}, for "
            f"{seconds:.0f} s. They are written later; when it is full, requests are refused."
        )
    elif seconds > WRITE_DELAY or not recorder.alive:
        text = (
            f"The request log cannot be written: {waiting} entries wait, for {seconds:.0f} s. "
            "Requests are refused soon."
        )
    else:
        return
    details = {"waiting": waiting, "seconds": round(seconds)}
    yield Condition(AlertKind.LOG_UNWRITABLE, "", True, "request log", text, details)


def error_rate_condition(
    settings: ErrorRate, requests: int, failed: int, *, complete: bool
) -> Condition:
    """`complete`: the counts cover the whole window, so that few requests mean that there were
    few."""
    share = failed / requests if requests else 0.0
    active = exceeds(share, settings.above, settings.above * _ERROR_RATE_CLEARED)
    if requests < settings.min_requests:
        active = False if complete else None
    return Condition(
        AlertKind.ERROR_RATE,
        "",
        active,
        "requests",
        f"{failed:,} of {requests:,} requests have failed in the last {settings.window:.0f} s "
        f"({100 * share:.0f} %).",
        {
            "requests": requests,
            "failed": failed,
            "share": round(share, 4),
            "window_seconds": settings.window,
        },
    )


class DiskSpace(NamedTuple):
    """Bytes; `free` is what other users than root can write."""

    total: int
    free: int


class DiskProbe:
    """Asks a file system for its free space, in a thread: it may not answer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._task: asyncio.Task[DiskSpace] | None = None

    async def measure(self) -> DiskSpace | None:
        """Measures the space; None if it is not known in time; a later call gets the answer."""
        if self._task is None:
            self._task = asyncio.ensure_future(asyncio.to_thread(self._read))
        done, _ = await asyncio.wait({self._task}, timeout=_DISK_TIMEOUT)
        if not done:
            return None
        task, self._task = self._task, None
        return task.result() if task.exception() is None else None

    def _read(self) -> DiskSpace:
        total, _, free = shutil.disk_usage(self._path)
        return DiskSpace(total, free)


def disk_condition(settings: DiskFree, space: DiskSpace | None) -> Condition:
    kind = AlertKind.DISK_LOW
    if space is None or not space.total:
        return Condition(kind, "", None)
    needed = max(settings.bytes, space.total * settings.percent // 100)
    percent = 100 * space.free / space.total
    return Condition(
        kind,
        "",
        True if space.free < needed else (None if space.free < needed * _DISK_CLEARED else False),
        "disk of the state directory",
        f"The file system of the state directory has {space.free / 2**30:.1f} GiB free "
        f"({percent:.1f} %).",
        {"free_bytes": space.free, "total_bytes": space.total, "free_percent": round(percent, 1)},
    )
