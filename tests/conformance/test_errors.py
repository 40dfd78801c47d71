"""What goes wrong upstream: by status, as the first event, in the middle, or cut. Each library must
raise the class that a program expects, and never take half an answer for a whole one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from gateway.core.formats import Format
from gateway.routing.health import Health
from gateway.routing.retry_budget import RetryBudget
from tests.conformance.clients.base import How, Talk, Tool, Wish
from tests.conformance.neutral_reply import Called, Thought, say
from tests.conformance.pairs import Clients, Pair, clients_of, pair_config
from tests.conformance.validating_upstream import (
    COMPLAINT,
    Broken,
    Ending,
    Refused,
    Trouble,
    ValidatingUpstream,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAID = say(Thought("Hm, let me think.", "SEAL"), "Half an answer, and the other half.")
CALLING = say("I call.", Called("call_1", "clock", {"city": "Rome", "day": "tomorrow"}))


@dataclass(frozen=True, slots=True)
class Told:
    """What a client hears: the status, chat's code, the messages type and the text."""

    status: int
    code: str
    type: str
    message: str


TOLD = {
    Trouble.BAD: Told(400, "invalid_request_error", "invalid_request_error", COMPLAINT),
    Trouble.KEY: Told(502, "upstream_forbidden", "api_error", "Upstream access forbidden"),
    Trouble.BUSY: Told(503, "no_available_accounts", "overloaded_error", "No available accounts"),
    Trouble.BROKEN: Told(503, "server_is_overloaded", "overloaded_error", "Service unavailable"),
    Trouble.OVERLOADED: Told(
        503, "server_is_overloaded", "overloaded_error", "Service unavailable"
    ),
}
CUTS = (Ending.NEAT, Ending.TRUNCATED, Ending.RESET)
CUT = Told(502, "bad_upstream_response", "api_error", "Bad upstream response")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def wary(
    strict_upstream: ValidatingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clients]:
    """Of a gateway of their own: what it has been through here is nobody else's affair."""
    state_dir: Path = tmp_path_factory.mktemp("wary")
    async with clients_of(state_dir, **pair_config(strict_upstream.address)) as clients:
        yield clients


def check_status(error: Exception, client: Format, told: Told) -> None:
    """An error that came instead of an answer."""
    if client is Format.MESSAGES:
        assert isinstance(error, anthropic.APIStatusError)
        kind = anthropic.BadRequestError if told.status == 400 else anthropic.InternalServerError
        assert isinstance(error, kind)
        body: Any = error.body
        assert (error.status_code, body["error"]["type"]) == (told.status, told.type)
        assert body["error"]["message"] == told.message
        assert body["request_id"] == error.request_id
    else:
        assert isinstance(error, openai.APIStatusError)
        expected = openai.BadRequestError if told.status == 400 else openai.InternalServerError
        assert isinstance(error, expected)
        assert error.status_code == told.status
        # Of a refusal the upstream's own code is told, and not every format has one.
        assert told.code == (error.type if told.status == 400 else error.code)
        assert told.message in error.message
        assert error.request_id is not None


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def nobody_tries_again(wary: Clients) -> None:
    """The gateway's retries are spent, so that each test hears of its own error at once."""
    runtime = wary.gateway.daemon.runtime
    runtime.health, runtime.retry_budget = Health(), RetryBudget()
    while runtime.retry_budget.try_acquire(asyncio.get_running_loop().time()):
        pass


troubles = pytest.mark.parametrize("trouble", Trouble, ids=lambda trouble: str(trouble.value))


@pytest.mark.parametrize("how", [How.CREATE, How.STREAM], ids=lambda how: how.value)
@troubles
async def test_statuses(
    wary: Clients, pair: Pair, vendor: ValidatingUpstream, trouble: Trouble, how: How
) -> None:
    vendor.play(Refused(trouble))
    talk = wary.talk(pair.client, pair.model)
    talk.ask("Hello?")
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await talk.hear(how)
    check_status(raised.value, pair.client, TOLD[trouble])


@pytest.mark.parametrize("how", [How.STREAM, How.HELPER], ids=lambda how: how.value)
@troubles
async def test_an_error_event_before_any_other(
    wary: Clients, pair: Pair, vendor: ValidatingUpstream, trouble: Trouble, how: How
) -> None:
    """As if it had been the status."""
    vendor.play(Broken(SAID, 0, Ending.ERROR, trouble))
    talk = wary.talk(pair.client, pair.model)
    talk.ask("Hello?")
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await talk.hear(how)
    check_status(raised.value, pair.client, TOLD[trouble])


async def break_chat(clients: Clients, talk: Talk, wish: Wish, told: Told) -> None:
    with pytest.raises(openai.APIError) as raised:
        async for _ in await clients.openai.chat.completions.create(
            **talk.fields(wish), stream=True
        ):
            pass
    assert not isinstance(raised.value, openai.APIStatusError)
    # Of a refusal the upstream's own code is told, and not every format has one.
    assert told.code == (raised.value.type if told.status == 400 else raised.value.code)
    assert raised.value.message == told.message


async def break_messages(clients: Clients, talk: Talk, wish: Wish, told: Told) -> None:
    with pytest.raises(anthropic.APIStatusError) as raised:
        async for _ in await clients.anthropic.messages.create(**talk.fields(wish), stream=True):
            pass
    body: Any = raised.value.body
    assert (body["error"]["type"], body["error"]["message"]) == (told.type, told.message)


async def break_responses(clients: Clients, talk: Talk, wish: Wish, told: Told) -> None:
    stream = await clients.openai.responses.create(**talk.fields(wish), stream=True)
    events: list[Any] = [event async for event in stream]
    last = events[-1]
    if last.type == "error":
        # Where the vendor itself ends like this, the native lane does not make it another.
        assert (last.code, last.message) == (told.code, told.message)
        assert talk.model == Pair(Format.RESPONSES, Format.RESPONSES).model
        return
    assert last.type == "response.failed"
    assert (last.response.status, last.response.error.code) == ("failed", told.code)
    assert last.response.error.message == told.message
    assert last.response.id == events[0].response.id


BREAK = {
    Format.CHAT: break_chat,
    Format.MESSAGES: break_messages,
    Format.RESPONSES: break_responses,
}


def told_within(pair: Pair, trouble: Trouble) -> Told:
    """The native lane passes on what the upstream itself says of its own failures."""
    if not pair.native or trouble not in (Trouble.BROKEN, Trouble.OVERLOADED):
        return TOLD[trouble]
    types = {Trouble.BROKEN: "api_error", Trouble.OVERLOADED: "overloaded_error"}
    codes = {Trouble.BROKEN: "server_error", Trouble.OVERLOADED: "server_is_overloaded"}
    return Told(503, codes[trouble], types[trouble], COMPLAINT)


PLACES = {"in a thought": (SAID, 0.3), "in a text": (SAID, 0.6), "in a call": (CALLING, 0.6)}


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.name.lower())
@pytest.mark.parametrize("place", PLACES)
async def test_half_an_answer(
    wary: Clients, pair: Pair, vendor: ValidatingUpstream, place: str, ending: Ending
) -> None:
    """By plain iteration and by the helper: it is told that this is not all."""
    said, share = PLACES[place]
    told = told_within(pair, Trouble.OVERLOADED) if ending is Ending.ERROR else CUT
    vendor.play(Broken(said, share, ending), Broken(said, share, ending))
    talk = wary.talk(pair.client, pair.model)
    talk.ask("Hello?")
    wish = Wish(tools=(Tool("clock"),))
    await BREAK[pair.client](wary, talk, wish, told)
    # The responses library has no error of its own for this.
    with pytest.raises((openai.APIError, anthropic.APIError, RuntimeError)):
        await talk.helper(wish)


@troubles
async def test_an_error_event_after_some_words(
    wary: Clients, pair: Pair, vendor: ValidatingUpstream, trouble: Trouble
) -> None:
    vendor.play(Broken(SAID, 0.6, Ending.ERROR, trouble))
    talk = wary.talk(pair.client, pair.model)
    talk.ask("Hello?")
    await BREAK[pair.client](wary, talk, Wish(), told_within(pair, trouble))


@pytest.mark.parametrize("ending", CUTS, ids=lambda ending: ending.name.lower())
async def test_half_a_whole_answer(
    wary: Clients, pair: Pair, vendor: ValidatingUpstream, ending: Ending
) -> None:
    vendor.play(Broken(SAID, 0.7, ending))
    talk = wary.talk(pair.client, pair.model)
    talk.ask("Hello?")
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await talk.create(Wish())
    check_status(raised.value, pair.client, CUT)


@pytest.mark.parametrize("ending", CUTS, ids=lambda ending: ending.name.lower())
async def test_nothing_of_an_answer(
    wary: Clients, pair: Pair, vendor: ValidatingUpstream, ending: Ending
) -> None:
    """An empty stream is an error like a status."""
    vendor.play(Broken(SAID, 0, ending))
    talk = wary.talk(pair.client, pair.model)
    talk.ask("Hello?")
    with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)):
        await talk.stream(Wish())
