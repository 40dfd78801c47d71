"""One small real request to one account, for an operator who wants to know whether it works.

It goes out as every other does, but no client waits, nothing is billed, and what comes of it counts
for nobody. It must not know who wants to know.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.core.failure import Failure
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.reply import Reply
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, Snapshot, new_request_id
from gateway.server.attempt import Asked
from gateway.server.deadlines import run_with_timeout
from gateway.server.translated import TranslatedAttempt
from gateway.server.trial import LONGEST_ERROR
from gateway.server.whole import hear_out
from gateway.upstream.client import AccountAtCapacity, AttemptFailed
from gateway.wire.codecs import CODECS

PATIENCE: Final = 25.0
"""Seconds that the upstream has for all of it: a person waits."""

_PROMPT: Final = "Say hello."
_MOST_TOKENS: Final = 64
_FIRST_WORDS: Final = 200
_SUCCESS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of it; `total_us` is in microseconds. `words` are the reply's first ones, empty
    where it has none. `error` is what the upstream really said, without secrets; `verdict` and
    `blame` are how the failure of a client's request would have been judged."""

    ok: bool
    status: int | None = None
    total_us: int
    words: str | None = None
    stop_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str | None = None
    verdict: str | None = None
    blame: str | None = None


async def try_account(runtime: Runtime, candidate: Candidate) -> Tried:
    """Asks for a stream, which every upstream has; one that answers in one piece may. Raises
    `ServiceUnavailable` where the gateway ends meanwhile."""
    snapshot, loop = runtime.current, asyncio.get_running_loop()
    snapshot.requests += 1
    began = loop.time()

    def taken() -> int:
        return round((loop.time() - began) * 1e6)

    try:
        reply = await run_with_timeout(runtime, PATIENCE, _ask(runtime, snapshot, candidate))
        return _answered(reply, taken())
    except AccountAtCapacity:
        full = "it has as many requests as it may have: nothing was sent"
        return Tried(ok=False, total_us=taken(), error=full)
    except AttemptFailed as failed:
        return _failed(snapshot, failed.failure, taken())
    finally:
        runtime.leave(snapshot)


async def _ask(runtime: Runtime, snapshot: Snapshot, candidate: Candidate) -> Reply:
    codec, prompt = CODECS[candidate.format], _prompt(candidate)
    asked = Asked(
        exchange_id=new_request_id(runtime.now()),
        snapshot=snapshot,
        codec=codec,
        prompt=prompt,
        raw=b"{}",
        body={},
        crossing={},
        query="",
        input_tokens=runtime.estimates.estimate(candidate.model, prompt),
    )
    attempt = TranslatedAttempt(runtime, asked, candidate, streamed=True)
    sending = snapshot.upstream.send(candidate, attempt.payload, attempt.crossing, attempt.query)
    _, whole = await hear_out(sending, attempt, snapshot.config.server.max_response)
    return codec.parse_reply(orjson.loads(whole.body))


def _prompt(candidate: Candidate) -> Prompt:
    """In the upstream's own format, so that nothing of it is lost or imitated."""
    return Prompt(
        format=candidate.format,
        model=candidate.model,
        turns=(Turn(Role.USER, (Text(_PROMPT),)),),
        stream=True,
        include_usage=True,
        max_tokens=_MOST_TOKENS,
    )


def _answered(reply: Reply, total_us: int) -> Tried:
    words = "".join(part.text for part in reply.parts if isinstance(part, Text))
    usage = reply.usage
    return Tried(
        ok=True,
        status=_SUCCESS,
        total_us=total_us,
        words=words[:_FIRST_WORDS],
        stop_reason=reply.stop.value,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
    )


def _failed(snapshot: Snapshot, failure: Failure, total_us: int) -> Tried:
    verdict = snapshot.judge.judge(failure)
    said = snapshot.redactor.secrets(failure.body or failure.message)
    return Tried(
        ok=False,
        status=failure.status,
        total_us=total_us,
        error=said[:LONGEST_ERROR],
        verdict=verdict.reason,
        blame=verdict.blame.value,
    )
