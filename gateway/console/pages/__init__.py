"""The pages, one module each. `add_routes` adds its paths, relative to those of the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from gateway.console.pages import (
    admin_tokens,
    admins,
    audit,
    channels,
    connect,
    groups,
    logs,
    overview,
    replicas,
    request,
    signin,
    token_forms,
    tokens,
)

PAGES: Final[tuple[Callable[[web.Application], None], ...]] = (
    signin.add_routes,
    overview.add_routes,
    tokens.add_routes,
    token_forms.add_routes,
    groups.add_routes,
    channels.add_routes,
    replicas.add_routes,
    logs.add_routes,
    request.add_routes,
    connect.add_routes,
    admins.add_routes,
    admin_tokens.add_routes,
    audit.add_routes,
)
