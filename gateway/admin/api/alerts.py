"""Alerts as operators see them, and their routes in the admin API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.forms import WebhookForm
from gateway.admin.api.json import json_response, read_query
from gateway.admin.errors import NoWebhooks, UnknownWebhook


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView:
    """An alert that fires. `since` is in Unix microseconds; `deliveries` has what became of its
    message, by webhook: `waiting`, `delivered` or `failed: …`."""

    id: str
    alert: str
    severity: str
    subject: str
    summary: str
    details: dict[str, Any]
    since: int
    deliveries: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTest:
    """`error` is None if the webhook took the message; `seconds` until its answer."""

    webhook: str
    ok: bool
    error: str | None
    seconds: float


class AlertSource(Protocol):
    """The alerts of a running gateway."""

    def firing(self) -> list[AlertView] | None:
        """Returns the firing alerts, oldest first; None if the configuration has no alerts."""
        ...

    def held_back(self) -> dict[str, int]:
        """Returns, by kind, how many more would fire if there were not so many already."""
        ...

    def webhooks(self) -> list[str]:
        """Returns the names of the webhooks."""
        ...

    async def test(self, names: Sequence[str]) -> list[WebhookTest]:
        """Sends a message to each of these webhooks."""
        ...


def add_alert_routes(app: web.Application, alerts: AlertSource) -> None:
    @requires(Permission.READ)
    async def list_alerts(_: web.Request) -> web.Response:
        firing, webhooks = alerts.firing(), alerts.webhooks()
        return json_response(
            {
                "configured": firing is not None,
                "webhooks": webhooks,
                "alerts": firing or [],
                "held_back": alerts.held_back(),
            }
        )

    @requires(Permission.OPERATE, "alerts.test")
    async def test_webhooks(request: web.Request) -> web.Response:
        """Tests the webhooks; the status is 200 also if a webhook fails: see `ok`."""
        name = read_query(request, WebhookForm).webhook
        names = alerts.webhooks()
        if not names:
            raise NoWebhooks
        if name is not None and name not in names:
            raise UnknownWebhook(name, ", ".join(names))
        return json_response({"results": await alerts.test(names if name is None else [name])})

    app.router.add_get("/alerts", list_alerts)
    app.router.add_post("/alerts/test", test_webhooks)
