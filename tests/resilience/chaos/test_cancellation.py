"""However and whenever a request is broken off, it leaves one row that has ended, gives back all
that it took, and costs in memory what it costs in the ledger.

Hypothesis picks the scene, the moment and the way. Independent of how handlers await.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.records import ExchangeState
from tests.resilience.chaos.cancellation import WHILE, Break, Request, Scene, Stage, open_stage
from tests.support.hypothesis_profiles import examples
from tests.support.upstream import (
    Ending,
    Response,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

MOST_AWAITS: Final = 20
"""No handler here has many more."""

BROKEN: Final = (ExchangeState.CLIENT_GONE, ExchangeState.OK)
"""A client that leaves at the very end has everything."""

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]


def slowly(script: Response) -> Response:
    return by_frame(script).with_changes(pause=0.002)


def long(script: Response) -> Response:
    """More than the sockets on its way hold."""
    return script.with_changes(chunks=(script.body.replace(b"world!", b"world!" * 100_000),))


WHOLE, STREAM = fixture_reply("chat"), fixture_stream("chat")
CUT = by_frame(fixture_stream("chat", "cut", ending=Ending.TRUNCATED))
FAILURE = json_response({"error": {"message": "try again"}}, 500)

SCENES: Final = {
    "whole": Scene(False, (WHOLE,)),
    "stream": Scene(True, (slowly(STREAM),)),
    "whole, in line": Scene(False, (WHOLE,), queued=True),
    "stream, in line": Scene(True, (slowly(STREAM),), queued=True),
    "whole, before the head": Scene(False, (WHOLE.with_changes(delay=WHILE),)),
    "stream, before the head": Scene(True, (STREAM.with_changes(delay=WHILE),)),
    "whole, between attempts": Scene(False, (FAILURE, WHOLE)),
    "stream, between attempts": Scene(True, (FAILURE, slowly(STREAM))),
    "whole, nobody answers": Scene(False, (FAILURE,)),
    "stream, nobody answers": Scene(True, (FAILURE,)),
    "whole, last write": Scene(False, (long(WHOLE),), late=True),
    "stream, last write": Scene(True, (long(STREAM),), late=True),
    "stream of a whole": Scene(True, (WHOLE,)),
    "stream that is cut": Scene(True, (CUT,)),
}

ENDS: Final = {
    "whole, nobody answers": ExchangeState.ERROR,
    "stream, nobody answers": ExchangeState.ERROR,
    "stream that is cut": ExchangeState.UPSTREAM_CUT,
}
"""Scenes that end badly by themselves."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path_factory.mktemp("cancel")) as stage:
        yield stage


async def broken_at(stage: Stage, scene: Scene, how: Break, at: int, again: int) -> Request:
    """`again`: how many awaits later it is broken off a second time, where that is the way."""
    moments = (at, at + again) if how is Break.TWICE else (at,)

    def act(number: int, awaited: asyncio.Future[Any] | None) -> None:
        request = stage.request
        assert request is not None
        request.awaits = number
        if number in moments:
            request.break_off(how, awaited)

    stage.at = act
    async with stage.running_request(scene) as request:
        pass
    return request


@pytest.mark.parametrize("name", SCENES)
async def test_left_alone(stage: Stage, name: str) -> None:
    """The moments are there that the scenes are for."""
    scene = SCENES[name]
    request = await broken_at(stage, scene, Break.CANCEL, at=0, again=0)
    row = await stage.row(request.token)
    assert 0 < request.awaits <= MOST_AWAITS + 4
    assert row.state is ENDS.get(name, ExchangeState.OK)
    if "between attempts" in name:
        assert row.attempts == 2
    if scene.queued or scene.late or "before the head" in name:
        assert row.total_us is not None
        assert row.total_us >= WHILE * 1e6


@examples(1.5)
@given(
    name=st.sampled_from(sorted(SCENES)),
    how=st.sampled_from(Break),
    at=st.integers(1, MOST_AWAITS),
    again=st.integers(1, 3),
)
async def test_at_any_await(stage: Stage, name: str, how: Break, at: int, again: int) -> None:
    request = await broken_at(stage, SCENES[name], how, at, again)
    await stage.row(request.token)


@examples(1)
@given(script=st.sampled_from((WHOLE, STREAM)), how=st.sampled_from(Break), data=st.data())
async def test_at_any_byte(stage: Stage, script: Response, how: Break, data: st.DataObject) -> None:
    """Up to which an upstream has sample that says nothing more."""
    result = data.draw(st.integers(0, len(script.body)))
    silent = script.with_changes(
        chunks=(script.body[:result],) if result else (), ending=Ending.STALLED
    )
    stage.at = lambda *_: None
    async with stage.running_request(Scene(script is STREAM, (silent,))) as request:
        await asyncio.sleep(WHILE)
        request.break_off(how)
    row = await stage.row(request.token)
    assert row.state in BROKEN
