"""What is wrong now, on top of every page: what alerts, accounts, keys and replicas know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from sqlalchemy.exc import SQLAlchemyError

from gateway.admin.access.permissions import Permission, current_actor
from gateway.admin.api.replicas import replica_views
from gateway.admin.operations import CoalescingCache
from gateway.config.monitoring import AlertKind
from gateway.console import CONSOLE_PATH
from gateway.console.channel_view import channel_health
from gateway.console.context import ConsoleContext
from gateway.console.guard import SESSION
from gateway.store.errors import StoreError
from gateway.store.records import DAY_US
from gateway.store.tokens import expiring_tokens

MOST: Final = 6
"""Notices on a page: the overview has all alerts."""
EXPIRY_DAYS: Final = 7
"""Days before its end in which a key is announced."""

_MOST_KEYS: Final = 3
_PLACES: Final = {
    AlertKind.BUDGET_USED: "/tokens",
    AlertKind.ERROR_RATE: "/logs?outcome=upstream_error",
    AlertKind.ACCOUNT_AUTH_FAILED: "/channels",
    AlertKind.ACCOUNT_CIRCUIT_OPEN: "/channels",
    AlertKind.CHANNEL_DOWN: "/channels",
}
"""The page that shows more."""


@dataclass(frozen=True, slots=True)
class Notice:
    """`tone` is a class of the style sheet; `since` is in Unix microseconds, None if unknown."""

    tone: str
    text: str
    path: str
    since: int | None = None


NOTICES: Final = web.RequestKey("notices", tuple[Notice, ...])

_STORED: Final = web.AppKey("stored", CoalescingCache[None, tuple[Notice, ...]])


def add_notices(app: web.Application, context: ConsoleContext) -> None:
    """Collects notices for the pages; asks the database once a second at most."""
    app[_STORED] = CoalescingCache(lambda _: _read_stored(context))

    @web.middleware
    async def attach(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_page = request.headers.get("Sec-Fetch-Dest") != "empty"
        if is_page and request.method == hdrs.METH_GET and _is_for_admin(request):
            stored = await app[_STORED].get(None)
            request[NOTICES] = (*_file(context), *_alerts(context), *stored)
        return await handler(request)

    app.middlewares.append(attach)


def _is_for_admin(request: web.Request) -> bool:
    return SESSION in request and current_actor().may(Permission.READ)


async def _read_stored(context: ConsoleContext) -> tuple[Notice, ...]:
    try:
        return (*await _replicas(context), *await _keys(context))
    except (SQLAlchemyError, StoreError):  # the page itself says so
        return ()


def _file(context: ConsoleContext) -> Iterator[Notice]:
    if (error := context.runtime.config_error) is not None:
        text = f"The configuration file is invalid, so the last valid one stays in force: {error}."
        yield Notice("bad", f"{text} `gateway check` lists the errors.", "")


def _alerts(context: ConsoleContext) -> Iterator[Notice]:
    """Those that fire; without a section `alerts` what the accounts know."""
    firing = context.alerts.firing()
    if firing is None:
        for channel in channel_health(context.runtime, context.accounts):
            if channel.unhealthy_count:
                number, count = channel.unhealthy_count, len(channel.accounts)
                tone = "bad" if number == count else "warn"
                text = f"Channel {channel.name}: {number} of {count} accounts unhealthy."
                yield Notice(tone, text, f"{CONSOLE_PATH}/channels", channel.failing_since)
        return
    for alert in sorted(firing, key=lambda each: each.severity != "critical"):
        if alert.alert != AlertKind.CONFIG_INVALID:
            tone = "bad" if alert.severity == "critical" else "warn"
            place = _PLACES.get(AlertKind(alert.alert), "")
            yield Notice(tone, alert.summary, f"{CONSOLE_PATH}{place}", alert.since)


async def _keys(context: ConsoleContext) -> Sequence[Notice]:
    now, database = context.now(), context.operations.database
    end = now + EXPIRY_DAYS * DAY_US
    names, count = await expiring_tokens(database, now, end, _MOST_KEYS)
    if not count:
        return []
    more = f" and {count - len(names)} more" if count > len(names) else ""
    verb = "expires" if count == 1 else "expire"
    text = f"{', '.join(names)}{more}: {verb} within {EXPIRY_DAYS} days."
    return [Notice("warn", f"{'Key' if count == 1 else 'Keys'} {text}", f"{CONSOLE_PATH}/tokens")]


async def _replicas(context: ConsoleContext) -> Sequence[Notice]:
    if not context.runtime.fleet.is_replica:
        return []
    now = context.now()
    return [
        Notice(
            "bad",
            f"Replica {each.name} is lost.",
            f"{CONSOLE_PATH}/replicas",
            now - int(each.heartbeat_age * 1_000_000),
        )
        for each in await replica_views(context.runtime, context.operations.database)
        if each.state in ("lost", "expired")
    ]
