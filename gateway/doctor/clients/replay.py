"""Sends what a client sends, step by step, and collects what breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import orjson

from gateway.core.value import value
from gateway.doctor.clients import checks
from gateway.doctor.clients.checks import StepEnded, called
from gateway.doctor.clients.profile import TEXTS, Profile, Request, Step, fill
from gateway.doctor.clients.readers import read
from gateway.doctor.clients.remedies import remedy_for_answer
from gateway.doctor.clients.reply import Answer, Fault, Reply, parse_object, text_at
from gateway.doctor.findings import State

_TIMEOUT: Final = 180.0
"""Seconds for one answer."""
_MAX_ANSWER: Final = 8 * 2**20
BAD_KEY: Final = "sk-doctor-not-a-key"


@value
class Attempt:
    """An attempt as the request log has it: the upstream's own status and error."""

    channel: str
    account: str
    lane: str
    status: int | None
    error: str | None


Lookup = Callable[[str], Awaitable[Sequence[Attempt]]]
"""The attempts of a request, by its id; none where the log cannot be read."""


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
    """One step for one model, and what was found."""

    profile: Profile
    model: str
    target: Target
    session: aiohttp.ClientSession
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    posted: list[str] = field(default_factory=list)
    """The ids of those that may have gone to an upstream."""
    is_repeated: bool = False
    """An upstream was asked more than once for one of them."""

    async def run(self, step: Step) -> None:
        """Send the requests of a step; a later one can continue the reply before."""
        values = TEXTS | {"$model": self.model}
        try:
            for request in step.requests:
                body = fill(request.body, values)
                answer = await self._send(request, body)
                reply = Reply()
                try:
                    await self._check(request, body, answer, reply)
                finally:
                    self.faults += reply.faults
                values |= {"$id": answer.json.get("id"), "$history": reply.history}
                values["$results"] = _results(request, reply, values)
        except StepEnded:
            pass

    async def _check(self, request: Request, body: Any, answer: Answer, reply: Reply) -> None:
        if (check := checks.OF_ANY_ANSWER.get(request.expect)) is None:
            if checks.is_tolerated(request, answer):
                raise StepEnded
            await self._expect_ok(answer, request.what)
            if (check := checks.OF_BODIES.get(request.expect)) is None:
                check = checks.OF_REPLIES[request.expect]
                read(request.path, body, answer, reply)
        check(request, self.model, answer, reply)

    async def _send(self, request: Request, body: Mapping[str, Any] | None) -> Answer:
        """Raises StepEnded without an answer."""
        name, prefix = self.profile.credential
        key = BAD_KEY if request.expect == "rejected_key" else self.target.key
        headers = {**self.profile.headers, **request.headers, name: f"{prefix}{key}"}
        headers["x-gateway-learn"] = "0"  # what is sent so that it is refused is no client's
        if body is not None:
            headers["content-type"] = "application/json"
        data = orjson.dumps(body) if body is not None else None
        try:
            async with self.session.request(
                request.method, self.target.address + request.path, data=data, headers=headers
            ) as response:
                answer = await _read(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"{request.method} {request.path}: {str(error) or 'no answer in time'}"
            self._fault(text, "gateway doctor checks the address")
            raise StepEnded from None
        if answer.request_id:
            self.requests.append(answer.request_id)
            self.posted += [answer.request_id] if request.method == "POST" else []
        self.is_repeated |= answer.headers.get("x-gateway-attempts", "1") != "1"
        if answer.channel is not None:
            self.channels.append(answer.channel)
        if dropped := answer.headers.get("x-gateway-dropped"):
            self.notes.append(f"not expressible for the channel: {dropped}")
        return answer

    async def _expect_ok(self, answer: Answer, what: str) -> None:
        """Raises StepEnded for an error, with the upstream's own words from the log."""
        if answer.status == 200:
            return
        attempts: Sequence[Attempt] = ()
        if answer.request_id:
            attempts = await self.target.lookup(answer.request_id)
            self.channels += [each.channel for each in attempts]
        text = f"{what} was refused with {answer.status} {answer.error}"
        text += "".join(f" [{words}]" for words in _failures(attempts))
        self._fault(text, remedy_for_answer(what, text, attempts))
        raise StepEnded

    def _fault(self, text: str, remedy: str) -> None:
        self.faults.append(Fault(text, remedy))

    async def result(self, step: str, *, once: bool) -> StepResult:
        if not once and (self.faults or self.is_repeated or not self.channels):
            told = "".join(fault.text for fault in self.faults)
            for request in self.posted:
                attempts = await self.target.lookup(request)
                self.channels += [each.channel for each in attempts[-1:]]
                self.notes += [words for words in _failures(attempts) if words not in told]
        return StepResult(
            step,
            "" if once else self.model,
            tuple(dict.fromkeys(self.channels)),
            tuple(self.faults),
            tuple(self.requests),
            tuple(dict.fromkeys(self.notes)),
        )


async def run_replay(
    profile: Profile,
    models: Sequence[str],
    target: Target,
    *,
    once: bool,
    report: Callable[[StepResult], None] = lambda result: None,
) -> list[StepResult]:
    """Send one request after the other. `once`: also the steps that are run once."""
    results = []
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(
        timeout=timeout, auto_decompress=True, skip_auto_headers=("user-agent",)
    ) as session:
        plan = [(step, models[0], True) for step in profile.once if once]
        plan += [(step, model, False) for model in models for step in profile.steps]
        for step, model, is_once in plan:
            replay = Replay(profile, model, target, session)
            await replay.run(step)
            results.append(await replay.result(step.name, once=is_once))
            report(results[-1])
    return results


def _failures(attempts: Iterable[Attempt]) -> list[str]:
    """Quote the upstreams' errors, or how their streams ended."""
    failed = [each for each in attempts if each.error or each.status != 200]
    return [
        f"{each.channel}/{each.account}: {each.status or 'no answer'} {_message(each.error or '')}"
        for each in failed
    ]


def _message(error: str) -> str:
    """The message in an upstream's body, or all of a body that has none."""
    return text_at(parse_object(error), "error", "message") or error


def _results(request: Request, reply: Reply, values: Mapping[str, Any]) -> list[Any]:
    """Answer the calls of a reply: vendors refuse a turn in which one has no result."""
    wanted = called(request, reply)
    results = []
    for call in reply.calls:
        template = request.result if call is wanted else request.cancelled
        results.append(fill(template, {**values, "$call_id": call.id}))
    return results


async def _read(response: aiohttp.ClientResponse) -> Answer:
    body, is_complete = bytearray(), True
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _MAX_ANSWER:
                is_complete = False
                response.close()
                break
    except aiohttp.ClientError:
        is_complete = False
    headers = {name.lower(): text for name, text in response.headers.items()}
    return Answer(response.status, headers, bytes(body), is_complete=is_complete)
