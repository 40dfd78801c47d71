"""A request on its way to its upstream, and the stages in which optional features complete it.

`app` registers the stages; the request path itself knows none of the features.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.prompt import Prompt
from gateway.routing.affinity import Affinity
from gateway.routing.router import Candidate, Route
from gateway.server.proxy.attempt import Attempt
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.exchange import Exchange
from gateway.wire.codec import Codec
from gateway.wire.json.fields import Payload


@dataclass(slots=True, kw_only=True)
class IncomingRequest:
    """A client's request, which stages may change: its body as bytes (`raw_body`), as JSON (`body`)
    and in no format's form (`prompt`, which `parse` reads), and the `headers` for an upstream of
    its own format.

    `own_body` is what the client itself has sent, with items instead of their names; `root_id` the
    first stored response of the chain that it continues. `route` is set between the stages.

    Stages can also set who answers it instead of a plain dispatch, what its upstreams get instead
    of it, and the class of an attempt at a candidate, if that is not the one of its lane.
    """

    request: web.Request
    exchange: Exchange
    permit: Permit
    codec: Codec
    parse: Callable[[object], Prompt]
    headers: Mapping[str, str]
    raw_body: bytes
    body: Payload
    prompt: Prompt
    own_body: bytes
    root_id: str | None = None
    route: Route = field(init=False)
    answer: Answer | None = None
    adapt: Adapt | None = None
    attempt_class: Callable[[Candidate], type[Attempt] | None] | None = None


Answer = Callable[[IncomingRequest, ClientRequest, Affinity | None], Awaitable[web.StreamResponse]]
Adapt = Callable[[ClientRequest, Candidate], Awaitable[ClientRequest]]
"""Raises `InvalidImage` or `ImageDownloadFailed` if the candidate's upstream cannot have it."""


class Stage(NamedTuple):
    """The step of a feature for each request to which it `applies`: by default for all."""

    run: Callable[[IncomingRequest], Awaitable[None]]
    applies: Callable[[IncomingRequest], object] = bool


class Stages(NamedTuple):
    """The stages of an endpoint, in order: those that complete the conversation before the model's
    route is looked up, and those that depend on it."""

    before_route: Sequence[Stage] = ()
    after_route: Sequence[Stage] = ()
