"""The pages, one module each. A module's `add` puts its addresses into the application; paths are
relative to where the console is mounted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from gateway.console.pages import (
    channels,
    connect,
    groups,
    logs,
    overview,
    request,
    signin,
    token_forms,
    tokens,
)

PAGES: Final[tuple[Callable[[web.Application], None], ...]] = (
    signin.add,
    overview.add,
    tokens.add,
    token_forms.add,
    groups.add,
    channels.add,
    logs.add,
    request.add,
    connect.add,
)
