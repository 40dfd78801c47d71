"""However badly an upstream answers, the account may have its next request."""

from __future__ import annotations

from tests.house import ACCOUNT
from tests.scripted import Script, ScriptedUpstream
from tests.upstream.calling import CANDIDATE, ask, failure_of, line_to
from tests.upstream.test_connection_malformed import ALL


async def test_after_each_malformed_response(upstream: ScriptedUpstream) -> None:
    account = {"name": ACCOUNT, "key": "k", "concurrency": 1}
    async with line_to(upstream.address, accounts=[account]) as line:
        for asked, case in enumerate(ALL, 1):
            wire, _, kind = case.values
            upstream.play(Script(instead=wire))
            assert (await failure_of(ask(line))).kind is kind, case.id
            assert line.in_flight(CANDIDATE.place) == 0, case.id
            assert len(upstream.seen) == asked, "it was answered, so it is not asked again"
