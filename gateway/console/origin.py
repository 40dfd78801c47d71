"""Whether what a browser sends comes from our own pages, and whether anybody could have read along.

It must not know who is signed in.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

from aiohttp import web
from yarl import URL

from gateway.admission.addresses import resolve_client_address
from gateway.config import Server

SITE_HEADER: Final = "Sec-Fetch-Site"

_OWN_SITES = ("same-origin", "none")


def client_address(request: web.Request, server: Server) -> str:
    """The client's address, where proxies that are trusted stand in between."""
    forwarded = request.headers.getall("X-Forwarded-For", ())
    return resolve_client_address(request.remote or "", forwarded, server.trusted_proxies)


def has_tls(server: Server) -> bool:
    """Whether clients come by TLS, which ends at a proxy: the configuration says so."""
    return server.public_url is not None and server.public_url.lower().startswith("https:")


def is_secure_transport(request: web.Request, server: Server) -> bool:
    """Whether nobody on the way can read along: TLS is declared, or client and gateway are on one
    machine and the browser knows it. A name that only leads here counts for nothing: that it does
    so may be somebody else's doing."""
    if has_tls(server):
        return True
    return _is_loopback(client_address(request, server)) and _is_loopback(_hostname(request.host))


def is_cross_site(request: web.Request, server: Server) -> bool:
    """Whether another site's page may have made the browser send this.

    Browsers tell the site with every request over TLS or to loopback, and the origin with all that
    may change something; no page can choose either. Pages that name no referrer, as ours, have
    the origin `null`: then the site must be told. Who sends neither is no browser.
    """
    site, origin = request.headers.get(SITE_HEADER), request.headers.get("Origin")
    if site is not None and site not in _OWN_SITES:
        return True
    if origin is None:
        return False
    if origin == "null":
        return site != "same-origin"
    return origin.lower() not in _own_origins(request.host, server)


def _own_origins(host: str, server: Server) -> set[str]:
    """As browsers spell them. Where TLS is declared, a page of the same name that came without it
    is another's."""
    own = set()
    if server.public_url is not None:
        own.add(str(URL(server.public_url).origin()).lower())
    if not has_tls(server) or _is_loopback(_hostname(host)):
        own.add(f"http://{host.lower()}")
    return own


def _hostname(host: str) -> str:
    """The host's name without its port; empty where it is no host."""
    try:
        return URL(f"http://{host}").host or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
