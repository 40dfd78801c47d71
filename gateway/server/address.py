"""Where a request really comes from, when proxies stand in between.

It must not know what the address is used for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from gateway.admission.addresses import Network, resolve_client_address

_HOP: Final = re.compile(r"\[([^\]]*)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+", re.ASCII)
"""An address with a port, or in brackets: so some proxies write it."""


def client_address(request: web.Request, trusted: Sequence[Network]) -> str:
    """The address of the client, as far as the peer or trusted proxies tell it."""
    if not trusted:
        return request.remote or ""
    forwarded = request.headers.getall("x-forwarded-for", ())
    return resolve_client_address(request.remote or "", forwarded, trusted)
