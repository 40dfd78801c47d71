"""A request on its way to its upstream, and the stages in which optional features complete it.

`app` registers the stages; the request path itself knows none of the features.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.errors import InvalidRequest
from gateway.routing.affinity import Affinity
from gateway.routing.health import AccountRef
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.scheduler import next_stage
from gateway.server.http.headers import LEARN_HEADER, request_headers_to_forward
from gateway.server.http.request_body import read_json
from gateway.server.proxy.attempt import Attempt
from gateway.server.proxy.misplaced_body import check_system, codec_of, read_refused
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.wire.codec import Codec
from gateway.wire.json.fields import Payload


@dataclass(slots=True, kw_only=True)
class IncomingRequest:
    """A client's request, which stages may change: its body as bytes (`raw_body`), as JSON (`body`)
    and in no format's form (`prompt`, which `parse` reads), and the `headers` for an upstream of
    its own format.

    `route` is set between the stages. Stages can add `adapters`, each of which adapts the request
    to a candidate, and `attempt_factories` for accounts whose attempts are not those of their lane.
    One of them can have the request answered by another function than a plain dispatch.
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
    route: Route = field(init=False)
    adapters: list[Adapt] = field(default_factory=list)
    attempt_factories: dict[AccountRef, NewAttempt] = field(default_factory=dict)
    answer: Answer | None = field(default=None, init=False)

    def answer_by(self, answer: Answer) -> None:
        """Raises `RuntimeError` if the request is answered by another feature already."""
        if self.answer is not None:
            raise RuntimeError(f"{self.answer} and {answer} answer one request")
        self.answer = answer

    def as_sent(self, estimate: int, query: str = "") -> ClientRequest:
        """The request for upstreams; `estimate` is that of its input before calibration, in tokens,
        `query` what may go to an upstream of its own format."""
        exchange, estimates = self.exchange, self.exchange.runtime.input_estimates
        return ClientRequest(
            request_id=exchange.id,
            snapshot=exchange.snapshot,
            codec=self.codec,
            prompt=self.prompt,
            raw_body=self.raw_body,
            body=self.body,
            forwarded_headers=self.headers,
            query=query,
            input_tokens=estimates.calibrated(self.route.model, estimate),
            raw_estimate=estimate,
            dropped=exchange.dropped,
            key=self.permit.token.id,
            teaches=self.request.headers.get(LEARN_HEADER) != "0",
        )


Answer = Callable[[IncomingRequest, ClientRequest, Affinity | None], Awaitable[web.StreamResponse]]
Adapt = Callable[[ClientRequest, Candidate], Awaitable[ClientRequest]]
"""Returns the request as the candidate's upstream takes it. Raises `UnsupportedByUpstream`."""
NewAttempt = Callable[[Runtime, ClientRequest, Candidate], Attempt]


class Stage(NamedTuple):
    """The step of a feature for each request to which it `applies`: by default for all."""

    run: Callable[[IncomingRequest], Awaitable[None]]
    applies: Callable[[IncomingRequest], object] = bool


class Stages(NamedTuple):
    """The stages of an endpoint, in order: those that complete the conversation before the model's
    route is looked up, and those that depend on it."""

    before_route: Sequence[Stage] = ()
    after_route: Sequence[Stage] = ()


async def receive(
    request: web.Request,
    permit: Permit,
    codec: Codec,
    parse: Callable[[object], Prompt],
    stages: Stages,
    others: Mapping[Format, Stages] | None = None,
) -> IncomingRequest:
    """Read a client's request, look up its route, and run its stages. `others` are those of all
    formats, where a body of another format than the path's is served in its own."""
    exchange, received = request[EXCHANGE], None
    server = exchange.snapshot.config.server
    try:
        headers = request_headers_to_forward(request, codec, server)
        raw_body, body = received = await read_json(request)
        await next_stage()
        if codec.format is Format.CHAT and "system" in body:  # chat would lose it
            check_system(request)
        prompt = await exchange.run_sized(parse, body)
    except InvalidRequest as error:
        if others is None:
            raise
        raw_body, body = received or await read_refused(request, error)
        codec = codec_of(request, body, codec, error)
        parse, stages = codec.parse_prompt, others[codec.format]
        headers = request_headers_to_forward(request, codec, server)
        prompt = await exchange.run_sized(parse, body)
    incoming = IncomingRequest(
        request=request,
        exchange=exchange,
        permit=permit,
        codec=codec,
        parse=parse,
        headers=headers,
        raw_body=raw_body,
        body=body,
        prompt=prompt,
    )
    for run, applies in stages.before_route:
        if applies(incoming):
            await run(incoming)
    exchange.prompt = prompt = incoming.prompt
    if permit.trusted is not None:
        permit = await exchange.record_dimensions(permit, permit.trusted, request.headers)
        incoming.permit = permit
    incoming.route = permit.route(exchange.snapshot.router, prompt.model, codec.format)
    await next_stage()
    for run, applies in stages.after_route:
        if applies(incoming):
            await run(incoming)
    return incoming
