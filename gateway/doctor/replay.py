"""Sends what a client sends, step by step, and collects what breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import orjson

from gateway.core.formats import Format
from gateway.core.value import value
from gateway.doctor.answer import Answer, part
from gateway.doctor.findings import State
from gateway.doctor.remedies import SEE_LOG, remedy_for_answer

_TIMEOUT: Final = 180.0
"""Seconds for one answer."""
_MAX_ANSWER: Final = 8 * 2**20
UNKNOWN_MODEL: Final = "doctor-no-such-model"


@value
class Attempt:
    """What the request log has of an attempt: the upstream's own status and error."""

    channel: str
    account: str
    lane: str
    status: int | None
    error: str | None


Lookup = Callable[[str], Awaitable[Sequence[Attempt]]]
"""The attempts of a request, by its id; none where the log cannot be read."""


@value
class Fault:
    """What breaks and why; `breaks` is false where the client can live with it."""

    text: str
    remedy: str
    breaks: bool = True


@value
class StepResult:
    """`model` is empty for steps that are run once."""

    step: str
    model: str
    channels: tuple[str, ...]
    faults: tuple[Fault, ...]
    requests: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        if any(fault.breaks for fault in self.faults):
            return State.PROBLEM
        return State.WARNING if self.faults else State.OK


@value
class Target:
    """`address` is without /v1."""

    address: str
    key: str
    lookup: Lookup


@dataclass(slots=True)
class Replay:
    """One step. `send` returns the answer; whatever is wrong with it becomes a fault."""

    profile: Profile
    model: str
    target: Target
    session: aiohttp.ClientSession
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def post(self, path: str, body: Mapping[str, Any], *, key: str | None = None) -> Answer:
        return await self.send("POST", path, orjson.dumps(body), key=key)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Raises StepFailed where there is no answer."""
        all_headers = {**self.profile.headers, **(headers or {})}
        name, prefix = self.profile.credential
        all_headers[name] = f"{prefix}{key or self.target.key}"
        if body is not None:
            all_headers["content-type"] = "application/json"
        try:
            async with self.session.request(
                method, self.target.address + path, data=body, headers=all_headers
            ) as response:
                answer = await _read(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or "no answer in time"
            self.fault(f"{method} {path}: {reason}", "gateway doctor checks the address")
            raise StepFailed from None
        if answer.request_id:
            self.requests.append(answer.request_id)
        if answer.channel is not None:
            self.channels.append(answer.channel)
        if dropped := answer.headers.get("x-gateway-dropped"):
            self.notes.append(f"not expressible for the channel: {dropped}")
        return answer

    async def expect_ok(self, answer: Answer, what: str) -> Answer:
        """Raises StepFailed for an error, with the upstream's own words from the log."""
        if answer.status == 200:
            return answer
        attempts = await self._attempts(answer)
        text = f"{what} was refused with {answer.status} {answer.error}"
        text += "".join(f" [{words}]" for words in _failures(attempts))
        self.fault(text, remedy_for_answer(what, text, attempts))
        raise StepFailed

    async def _attempts(self, answer: Answer) -> Sequence[Attempt]:
        if not answer.request_id:
            return ()
        attempts = await self.target.lookup(answer.request_id)
        self.channels += [each.channel for each in attempts]
        return attempts

    def fault(self, text: str, remedy: str = SEE_LOG) -> None:
        self.faults.append(Fault(text, remedy))

    def warn(self, text: str, remedy: str) -> None:
        self.faults.append(Fault(text, remedy, breaks=False))

    async def result(self, step: str, *, once: bool) -> StepResult:
        if self.requests and not once and (self.faults or not self.channels):
            attempts = await self.target.lookup(self.requests[-1])
            self.channels += [each.channel for each in attempts[-1:]]
            told = "".join(fault.text for fault in self.faults)
            self.notes += [words for words in _failures(attempts) if words not in told]
        return StepResult(
            step,
            "" if once else self.model,
            tuple(dict.fromkeys(self.channels)),
            tuple(self.faults),
            tuple(self.requests),
            tuple(dict.fromkeys(self.notes)),
        )


class StepFailed(Exception):
    """The fault is recorded; the rest of the step makes no sense."""


@value
class Step:
    """`requests` are sent, whose replies have at most `max_output` tokens together."""

    name: str
    run: Callable[[Replay], Awaitable[None]]
    requests: int = 1
    max_output: int = 0


@value(kw_only=True)
class Profile:
    """What identifies a client. `once` is run once, `steps` for each model; both in this order.
    `credential` is the name of the header and what precedes the key in it."""

    name: str
    format: Format
    source: str
    headers: Mapping[str, str]
    credential: tuple[str, str]
    once: tuple[Step, ...]
    steps: tuple[Step, ...]

    def cost(self, models: int) -> tuple[int, int]:
        """Requests, and output tokens at most."""
        steps = (*self.once, *(self.steps * models))
        return sum(step.requests for step in steps), sum(step.max_output for step in steps)


async def run_replay(
    profile: Profile,
    models: Iterable[str],
    target: Target,
    *,
    once: bool,
    report: Callable[[StepResult], None] = lambda result: None,
) -> list[StepResult]:
    """One request after the other. `once`: also the steps that need no model."""
    results = []
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(
        timeout=timeout, auto_decompress=True, skip_auto_headers=("user-agent",)
    ) as session:
        models = list(models)
        plan = [(step, models[0] if models else "", True) for step in profile.once if once]
        plan += [(step, model, False) for model in models for step in profile.steps]
        for step, model, is_once in plan:
            replay = Replay(profile, model, target, session)
            try:
                await step.run(replay)
            except StepFailed:
                pass
            except asyncio.CancelledError:
                raise
            results.append(await replay.result(step.name, once=is_once))
            report(results[-1])
    return results


def _failures(attempts: Iterable[Attempt]) -> list[str]:
    """What the upstreams said, or how their streams ended."""
    failed = [each for each in attempts if each.error or each.status != 200]
    return [
        f"{each.channel}/{each.account}: {each.status or 'no answer'} {_message(each.error or '')}"
        for each in failed
    ]


def _message(error: str) -> str:
    """Of an upstream's body, its message."""
    try:
        message = part(orjson.loads(error), "error", "message")
    except orjson.JSONDecodeError:
        return error
    return message if isinstance(message, str) else error


async def _read(response: aiohttp.ClientResponse) -> Answer:
    body, reads, is_complete = b"", 0, True
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            reads += 1
            if len(body) > _MAX_ANSWER:
                is_complete = False
                response.close()
                break
    except aiohttp.ClientError:
        is_complete = False
    headers = {name.lower(): text for name, text in response.headers.items()}
    return Answer(response.status, headers, body, is_complete=is_complete, reads=reads)
