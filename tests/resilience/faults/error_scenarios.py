"""Scenarios in which the upstream says no, or says something else than a reply.

Independent of how long anything takes.
"""

from __future__ import annotations

import orjson

from gateway.core.formats import Format
from tests.resilience.faults import error_bodies
from tests.resilience.faults.error_bodies import ERROR_TEXTS, OF_STATUS
from tests.resilience.faults.retry_hints import Hint, hint_headers
from tests.resilience.faults.sample_replies import Place
from tests.resilience.faults.scenario_registry import begin, scenario, sound
from tests.resilience.faults.timing_scenarios import ok
from tests.support.answer import JSON
from tests.support.upstream import ReceivedRequest


@scenario
async def refuse(
    call: ReceivedRequest,
    status: int = 503,
    error_name: str = "",
    dress: str = "own",
    *,
    seconds: float | None = None,
    date: float | None = None,
    ms: float | None = None,
    reset: float | None = None,
    window: float | None = None,
    body: float | None = None,
    text: float | None = None,
) -> None:
    """An HTTP status with an error body: `error_name` of `ERROR_TEXTS` (by default that of the
    status) in a `dress`, with hints when to retry: see `retry_hints.Hint`."""
    hint = Hint(seconds=seconds, date=date, ms=ms, reset=reset, window=window, body=body, text=text)
    format = Format(dress) if dress in ("chat", "messages") else call.format
    response = ERROR_TEXTS[error_name or OF_STATUS.get(status, "server")]
    result = error_bodies.error_object(format, response, call.key, hint)
    kind, written = error_bodies.dressed(format, dress, status, result)
    await call.answer.send_body(status, kind, written, hint_headers(call.format, hint))


@scenario
async def error(
    call: ReceivedRequest,
    place: Place = Place.START,
    error_name: str = "overloaded",
    form: str = "own",
    *,
    text: float | None = None,
    body: float | None = None,
) -> None:
    """An error event at a place of a 200 stream, and the stream's end. Not streamed: a 200 whose
    body is an error. `text` and `body` are hints as in `refuse`."""
    hint = Hint(text=text, body=body)
    output = error_bodies.error_object(call.format, ERROR_TEXTS[error_name], call.key, hint)
    if not call.streamed:
        written = orjson.dumps(error_bodies.envelope(call.format, output))
        await call.answer.send_body(200, JSON, written)
        return
    reply = sound(call)
    await begin(call, reply, place)
    await call.answer.say(error_bodies.error_frame(call.format, form, output, reply.marks[place]))
    await call.answer.end()


@scenario
async def stream_only(call: ReceivedRequest, wording: str = "detail") -> None:
    """Refuses whoever does not ask for a stream, in one of `refusals.STREAM_ONLY`."""
    if call.streamed or not call.generates:
        await ok(call)
        return
    status, body = error_bodies.stream_only_refusal(call.format, wording)
    await call.answer.send_body(status, JSON, body)


@scenario
async def page(call: ReceivedRequest, status: int = 200) -> None:
    """An HTML page where JSON belongs."""
    await call.answer.send_body(
        status, "text/html; charset=utf-8", error_bodies.page("Are you human?")
    )


@scenario
async def redirect(call: ReceivedRequest, status: int = 307, port: int = 0) -> None:
    """To `/elsewhere` at another port, or at this one."""
    place = f"127.0.0.1:{port}" if port else call.headers["host"]
    await call.answer.send_body(status, None, b"", [("location", f"http://{place}/elsewhere")])
