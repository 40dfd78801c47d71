"""The pages, one module each, whose `routes` are relative to the path of the console."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.console.pages import (
    admin_tokens,
    admins,
    audit,
    channels,
    configuration,
    connect,
    groups,
    key_signin,
    logs,
    my_key,
    overview,
    playground,
    replicas,
    request,
    routing,
    signin,
    token_forms,
    tokens,
    usage,
)

PAGES: Final[tuple[web.RouteTableDef, ...]] = (
    signin.routes,
    key_signin.routes,
    my_key.routes,
    overview.routes,
    tokens.routes,
    token_forms.routes,
    groups.routes,
    channels.routes,
    configuration.routes,
    routing.routes,
    playground.routes,
    replicas.routes,
    usage.routes,
    logs.routes,
    request.routes,
    connect.routes,
    admins.routes,
    admin_tokens.routes,
    audit.routes,
)
