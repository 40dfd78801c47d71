"""Scenarios in which the upstream says no, or says something else than a reply.

It must not know how long anything takes.
"""

from __future__ import annotations

import orjson

from gateway.core.formats import Format
from tests.faults import refusals
from tests.faults.call import Call
from tests.faults.hints import Hint, hint_headers
from tests.faults.refusals import OF_STATUS, WORDS
from tests.faults.speech import Place
from tests.faults.stage import JSON, begin, scenario, sound
from tests.faults.timing import ok


@scenario
async def refuse(
    call: Call,
    status: int = 503,
    words: str = "",
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
    """An HTTP status with an error body: `words` of `refusals.WORDS` (those of the status where
    none are given) in a `dress`, with hints when to come back: see `hints.Hint`."""
    hint = Hint(seconds=seconds, date=date, ms=ms, reset=reset, window=window, body=body, text=text)
    spoken = Format(dress) if dress in ("chat", "messages") else call.format
    said = WORDS[words or OF_STATUS.get(status, "server")]
    told = refusals.error_object(spoken, said, call.key, hint)
    kind, written = refusals.dressed(spoken, dress, status, told)
    await call.answer.whole(status, kind, written, hint_headers(call.format, hint))


@scenario
async def error(
    call: Call,
    place: Place = Place.START,
    words: str = "overloaded",
    form: str = "own",
    *,
    text: float | None = None,
    body: float | None = None,
) -> None:
    """An error event at a place of a 200 stream, and the stream's end. Not streamed: a 200 whose
    body is an error. `text` and `body` are hints as in `refuse`."""
    hint = Hint(text=text, body=body)
    said = refusals.error_object(call.format, WORDS[words], call.key, hint)
    if not call.streamed:
        written = orjson.dumps(refusals.envelope(call.format, said))
        await call.answer.whole(200, JSON, written)
        return
    told = sound(call)
    await begin(call, told, place)
    await call.answer.say(refusals.error_frame(call.format, form, said, told.marks[place]))
    await call.answer.end()


@scenario
async def stream_only(call: Call, wording: str = "detail") -> None:
    """Refuses whoever does not ask for a stream, in one of `refusals.STREAM_ONLY`."""
    if call.streamed or not call.generates:
        await ok(call)
        return
    status, body = refusals.stream_only_refusal(call.format, wording)
    await call.answer.whole(status, JSON, body)


@scenario
async def page(call: Call, status: int = 200) -> None:
    """An HTML page where JSON belongs."""
    await call.answer.whole(status, "text/html; charset=utf-8", refusals.page("Are you human?"))


@scenario
async def redirect(call: Call, status: int = 307, port: int = 0) -> None:
    """To `/elsewhere` at another port, or at this one."""
    place = f"127.0.0.1:{port}" if port else call.headers["host"]
    await call.answer.whole(status, None, b"", [("location", f"http://{place}/elsewhere")])
