"""Accounts whose credential is rejected or that fail too often, and channels without others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.alerts.condition import Condition
from gateway.config.alerts import AlertKind
from gateway.config.channel import Channel
from gateway.core.text import escape_unprintable
from gateway.routing.circuit_breaker import HealthState
from gateway.routing.health import AccountRef, HealthReport
from gateway.runtime import Runtime
from gateway.store.records import sanitize_text

_MAX_ERROR: Final = 200
_MAX_MODELS: Final = 10
_MAX_ACCOUNTS: Final = 50

_SOCKET_NAME: Final = re.compile(r"\('[^']*', \d+(?:, \d+)*\)")
"""As Python writes it: ('127.0.0.1', 8080)."""
_USABLE: Final = (HealthState.HEALTHY, HealthState.RATE_LIMITED)


def account_conditions(runtime: Runtime, now: float) -> Iterator[Condition]:
    """Of all accounts and channels of the configuration; `now` is loop time."""
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
    reason = failed[0].status.reason
    what = "its credential was rejected, or its quota is used up" if is_auth else "fails too often"
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
    """Down if no account is usable with any model; accounts that were disabled by hand alone do
    not make it an alert."""
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
