"""One small real request to one account, for an operator who wants to know whether it works.

It goes out as every other does, but no client waits, nothing is billed, and what comes of it counts
for nobody. It must not know who wants to know.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.core.events import Failure
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.reply import Reply
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, Snapshot, new_request_id
from gateway.server.attempt import ClientRequest, TranslatedAttempt
from gateway.server.attempt_outcome import MAX_ERROR_TEXT
from gateway.server.deadlines import run_with_timeout
from gateway.server.relay import read_reply
from gateway.upstream.client import AccountAtCapacity, AttemptFailed
from gateway.wire.registry import CODECS

PROBE_TIMEOUT: Final = 25.0
"""Seconds that the upstream has for all of it: a person waits."""

_PROMPT: Final = "Say hello."
_MAX_TOKENS: Final = 64
_MAX_WORDS: Final = 200
_SUCCESS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
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


async def probe_account(runtime: Runtime, candidate: Candidate) -> ProbeResult:
    """Asks for a stream, which every upstream has; one that answers in one piece may. Raises
    `ServiceUnavailable` where the gateway ends meanwhile."""
    snapshot, loop = runtime.current, asyncio.get_running_loop()
    snapshot.active_requests += 1
    began = loop.time()

    def taken() -> int:
        return round((loop.time() - began) * 1e6)

    try:
        reply = await run_with_timeout(
            runtime, PROBE_TIMEOUT, _send_probe(runtime, snapshot, candidate)
        )
        return _succeeded(reply, taken())
    except AccountAtCapacity:
        full = "it has as many requests as it may have: nothing was sent"
        return ProbeResult(ok=False, total_us=taken(), error=full)
    except AttemptFailed as failed:
        return _failed(snapshot, failed.failure, taken())
    finally:
        runtime.release(snapshot)


async def _send_probe(runtime: Runtime, snapshot: Snapshot, candidate: Candidate) -> Reply:
    codec, prompt = CODECS[candidate.format], _prompt(candidate)
    asked = ClientRequest(
        request_id=new_request_id(runtime.now()),
        snapshot=snapshot,
        codec=codec,
        prompt=prompt,
        raw_body=b"{}",
        body={},
        forwarded_headers={},
        query="",
        input_tokens=runtime.input_estimates.estimate(candidate.model, prompt),
    )
    attempt = TranslatedAttempt(runtime, asked, candidate, streamed=True)
    sending = snapshot.upstream.send(
        candidate, attempt.payload, attempt.forwarded_headers, attempt.query
    )
    _, whole = await read_reply(sending, attempt, snapshot.config.server.max_response)
    return codec.parse_reply(orjson.loads(whole.body))


def _prompt(candidate: Candidate) -> Prompt:
    """In the upstream's own format, so that nothing of it is lost or imitated."""
    return Prompt(
        format=candidate.format,
        model=candidate.model,
        turns=(Turn(Role.USER, (Text(_PROMPT),)),),
        stream=True,
        include_usage=True,
        max_tokens=_MAX_TOKENS,
    )


def _succeeded(reply: Reply, total_us: int) -> ProbeResult:
    words = "".join(part.text for part in reply.parts if isinstance(part, Text))
    usage = reply.usage
    return ProbeResult(
        ok=True,
        status=_SUCCESS,
        total_us=total_us,
        words=words[:_MAX_WORDS],
        stop_reason=reply.stop.value,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
    )


def _failed(snapshot: Snapshot, failure: Failure, total_us: int) -> ProbeResult:
    verdict = snapshot.failure_policy.classify(failure)
    said = snapshot.redactor.redact_secrets(failure.body or failure.message)
    return ProbeResult(
        ok=False,
        status=failure.status,
        total_us=total_us,
        error=said[:MAX_ERROR_TEXT],
        verdict=verdict.reason,
        blame=verdict.blame.value,
    )
