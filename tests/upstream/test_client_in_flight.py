"""However badly an upstream answers, the account may have its next request."""

from __future__ import annotations

from tests.support.gateway import ACCOUNT
from tests.support.upstream import Response, ScriptedUpstream
from tests.upstream.client_requests import CANDIDATE, failure_of, open_client, send
from tests.upstream.test_connection_malformed import ALL


async def test_after_each_malformed_response(upstream: ScriptedUpstream) -> None:
    account = {"name": ACCOUNT, "key": "k", "concurrency": 1}
    async with open_client(upstream.address, accounts=[account]) as line:
        for request, case in enumerate(ALL, 1):
            wire, _, kind = case.values
            upstream.respond_with(Response(raw=wire))
            assert (await failure_of(send(line))).kind is kind, case.id
            assert line.in_flight(CANDIDATE.account_ref) == 0, case.id
            assert len(upstream.requests) == request, "it was answered, so it is not asked again"
