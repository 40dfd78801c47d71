"""Where scenarios are entered by name, and what they have in common: the sound reply and its parts.

Independent of any scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import orjson

from tests.resilience.faults import sample_replies
from tests.resilience.faults.sample_replies import Place, Reply
from tests.support.answer import EVENTS, JSON, Framing
from tests.support.upstream import ReceivedRequest

Scenario = Callable[..., Coroutine[Any, Any, None]]
"""Takes the call and the words of its step."""

SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    """Enters a function under its own name; what its parameters are called and hold is what may
    stand in a plan."""
    SCENARIOS[play.__name__] = play
    return play


def sound(call: ReceivedRequest, case: str = "text") -> Reply:
    """What a sound upstream says."""
    if call.generates:
        return sample_replies.reply(call.format, call.streamed, case)
    if call.path.endswith("/count_tokens"):
        return sample_replies.in_quarters(orjson.dumps({"input_tokens": 12}))
    if call.path.endswith("/input_tokens"):
        counted = {"object": "response.input_tokens", "input_tokens": 12}
        return sample_replies.in_quarters(orjson.dumps(counted))
    models = [{"id": "upstream-model", "object": "model", "created": 1, "owned_by": "upstream"}]
    return sample_replies.in_quarters(orjson.dumps({"object": "list", "data": models}))


async def head(
    call: ReceivedRequest,
    framing: Framing = Framing.CHUNKED,
    length: int = 0,
    headers: Iterable[tuple[str, str]] = (),
) -> None:
    kind = EVENTS if call.streamed and call.generates else JSON
    await call.answer.head(200, kind, headers, framing=framing, length=length)


async def begin(
    call: ReceivedRequest,
    reply: Reply,
    place: Place,
    framing: Framing = Framing.CHUNKED,
    length: int = 0,
) -> None:
    """The answer as far as a place."""
    await head(call, framing, length)
    await say(call, reply.until(place))


async def say(call: ReceivedRequest, chunks: Iterable[bytes]) -> None:
    for piece in chunks:
        await call.answer.say(piece)
