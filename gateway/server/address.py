"""Where a request really comes from, when proxies stand in between.

A client can write any `x-forwarded-for`: only what trusted proxies added counts. It must not know
what the address is used for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from gateway.admission.addresses import Network, among

_HOP: Final = re.compile(r"\[([^\]]*)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+", re.ASCII)
"""An address with a port, or in brackets: so some proxies write it."""


def client_address(request: web.Request, trusted: Sequence[Network]) -> str:
    """The peer's address, or, where trusted proxies passed the request on, the last address of
    `x-forwarded-for` that is none of theirs."""
    address = request.remote or ""
    if not trusted:
        return address
    forwarded = ",".join(request.headers.getall("x-forwarded-for", ()))
    hops = [hop for part in forwarded.split(",") if (hop := part.strip())]
    while hops and among(address, trusted):
        address = _bare(hops.pop())
    return address


def _bare(hop: str) -> str:
    written = _HOP.fullmatch(hop)
    return hop if written is None else written[1] or written[2] or ""
