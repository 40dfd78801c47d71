"""The objects that the pages and the admin API of the TCP port use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.admin.access.access import Access
from gateway.admin.accounts import Accounts
from gateway.admin.api.alerts import AlertSource
from gateway.admin.feed import Feed
from gateway.admin.operations import AdminOperations
from gateway.admin.reload import Reloader
from gateway.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """`now` returns Unix microseconds; without a `reloader` the configuration is fixed."""

    operations: AdminOperations
    runtime: Runtime
    accounts: Accounts
    reloader: Reloader | None
    access: Access
    feed: Feed
    alerts: AlertSource
    now: Callable[[], int]


CONTEXT: Final = web.AppKey("context", ConsoleContext)
