"""A client's own credential of an upstream, for the channels that take that.

Whoever sends one is served with it alone. It is in the memory of its request, and nowhere else.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from gateway.errors import PermissionDenied
from gateway.routing.router import Route
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.store.keys import digest, well_formed
from gateway.store.registry import Registry

_HEADERS: Final = ("authorization", "x-api-key")


async def _take(incoming: IncomingRequest) -> None:
    """Restricts the route to the channel that takes the credential, or to the others. Raises
    `PermissionDenied` where nobody else serves the model."""
    exchange, route = incoming.exchange, incoming.route
    taking = exchange.snapshot.client_channels
    own = [each for each in route.candidates if each.channel in taking]
    if own and (lines := _credential(incoming, exchange.runtime.registry)):
        exchange.credential = lines
        incoming.route = Route(route.model, (own[0],), health_of=route.health_of)
        return
    others = tuple(each for each in route.candidates if each.channel not in taking)
    if not others:
        raise PermissionDenied(
            f"The model {incoming.prompt.model} needs your own credential of its upstream: send "
            "it in authorization or x-api-key, and the key of the gateway in x-gateway-key"
        )
    channels = [each for each in exchange.snapshot.config.channels if each.name in taking]
    reached = {id for channel in channels for id in channel.models}
    fallbacks = tuple(id for id in route.fallbacks if id not in reached)
    incoming.route = Route(route.model, others, fallbacks, route.health_of)


def _credential(incoming: IncomingRequest, registry: Registry) -> bytes:
    """The header lines of the credentials that are no key of the gateway."""
    lines = b""
    for name in _HEADERS:
        value = incoming.request.headers.get(name, "").strip()
        key = value.split(" ")[-1]
        if key and not well_formed(key) and registry.find(digest(key)) is None:
            lines += f"{name}: {value}\r\n".encode("utf-8", "surrogateescape")
    return lines


TAKE_CREDENTIAL: Final = Stage(_take, attrgetter("exchange.snapshot.client_channels"))
