"""The admin API of alerts."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.alerts import AlertSource
from gateway.admin.api_json import json_response, read_query
from gateway.admin.errors import NoWebhooks, UnknownWebhook
from gateway.admin.forms import WebhookForm
from gateway.admin.permissions import Permission, requires


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
        """200 also if a webhook fails: see `ok`."""
        name = read_query(request, WebhookForm).webhook
        names = alerts.webhooks()
        if not names:
            raise NoWebhooks
        if name is not None and name not in names:
            raise UnknownWebhook(name, ", ".join(names))
        return json_response({"results": await alerts.test(names if name is None else [name])})

    app.router.add_get("/alerts", list_alerts)
    app.router.add_post("/alerts/test", test_webhooks)
