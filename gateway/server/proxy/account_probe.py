"""One small real request to one account, for an operator who tests whether it works.

It is sent as any other, but nothing is billed, and the account's health stays as it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.config.presets import platform_hint
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.reply import Reply
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, Snapshot, new_request_id
from gateway.server.proxy.attempt import TranslatedAttempt
from gateway.server.proxy.attempt_outcome import MAX_ERROR_TEXT
from gateway.server.proxy.body_relay import read_reply
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.deadlines import run_with_timeout
from gateway.upstream.client import AccountAtCapacity
from gateway.upstream.response import AttemptFailed
from gateway.wire.registry import CODECS

PROBE_TIMEOUT: Final = 25.0
"""Seconds for the whole reply."""

_PROMPT: Final = "Say hello."
_MAX_TOKENS: Final = 64
_MAX_CHARS: Final = 200
_SUCCESS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """`total_us` is in microseconds. `words` is the beginning of the reply, empty where it has no
    text. `error` is the upstream's own, without secrets; `verdict` and `blame` are the
    classification that the failure of a client's request would get; `hint` says what to do, where
    the platform's error is known."""

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
    hint: str | None = None


async def probe_account(runtime: Runtime, candidate: Candidate) -> ProbeResult:
    """Requests a stream, which every upstream can send; a complete body is accepted too. Raises
    `ServiceUnavailable` where the gateway aborts."""
    snapshot, loop = runtime.current, asyncio.get_running_loop()
    snapshot.active_requests += 1
    started = loop.time()

    def elapsed_us() -> int:
        return round((loop.time() - started) * 1e6)

    try:
        sending = _send_probe(runtime, snapshot, candidate)
        reply = await run_with_timeout(runtime, PROBE_TIMEOUT, sending)
    except AccountAtCapacity:
        error = "it has as many requests as it may have: nothing was sent"
        return ProbeResult(ok=False, total_us=elapsed_us(), error=error)
    except AttemptFailed as failed:
        failure = failed.failure
        verdict = snapshot.failure_policy.classify(failure)
        error = snapshot.redactor.redact_secrets(failure.body or failure.message)
        return ProbeResult(
            ok=False,
            status=failure.status,
            total_us=elapsed_us(),
            error=error[:MAX_ERROR_TEXT],
            verdict=verdict.reason,
            blame=verdict.blame.value,
            hint=platform_hint(snapshot.upstream.channel(candidate).preset, error),
        )
    finally:
        runtime.release(snapshot)
    usage = reply.usage
    words = "".join(part.text for part in reply.parts if isinstance(part, Text))
    return ProbeResult(
        ok=True,
        status=_SUCCESS,
        total_us=elapsed_us(),
        words=snapshot.redactor.redact_secrets(words)[:_MAX_CHARS],
        stop_reason=reply.stop.value,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
    )


async def _send_probe(runtime: Runtime, snapshot: Snapshot, candidate: Candidate) -> Reply:
    codec = CODECS[candidate.format]
    prompt = Prompt(  # in the upstream's own format, so that nothing is dropped or emulated
        format=candidate.format,
        model=candidate.model,
        turns=(Turn(Role.USER, (Text(_PROMPT),)),),
        stream=True,
        include_usage=True,
        max_tokens=_MAX_TOKENS,
        # A reply that is to be stored would need its reasoning, which not every model encrypts.
        store=False if candidate.format is Format.RESPONSES else None,
    )
    request = ClientRequest(
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
    attempt = TranslatedAttempt(runtime, request, candidate)
    sending = snapshot.upstream.send(
        *(candidate, attempt.payload, attempt.forwarded_headers, attempt.query),
        streamed=attempt.streamed,
    )
    _, reply = await read_reply(sending, attempt, snapshot.config.server.max_response)
    return codec.parse_reply(orjson.loads(reply.body))
