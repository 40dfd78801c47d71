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
from tests.conformance.clients.base import CallMode, Conversation, Options, Tool
from tests.conformance.neutral_reply import Thinking, ToolCall, make_reply
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

HALF_REPLY = make_reply(
    Thinking("Hm, let me think.", "SEAL"), "Half an answer, and the other half."
)
TOOL_CALLING = make_reply(
    "I call.", ToolCall("call_1", "clock", {"city": "Rome", "day": "tomorrow"})
)


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The client's error: the status, chat's code, the messages type and the message."""

    status: int
    code: str
    type: str
    message: str


EXPECTED = {
    Trouble.BAD: ExpectedError(400, "invalid_request_error", "invalid_request_error", COMPLAINT),
    Trouble.KEY: ExpectedError(502, "upstream_forbidden", "api_error", "Upstream access forbidden"),
    Trouble.BUSY: ExpectedError(
        503, "no_available_accounts", "overloaded_error", "No available accounts"
    ),
    Trouble.BROKEN: ExpectedError(
        503, "server_is_overloaded", "overloaded_error", "Service unavailable"
    ),
    Trouble.OVERLOADED: ExpectedError(
        503, "server_is_overloaded", "overloaded_error", "Service unavailable"
    ),
}
CUTS = (Ending.NEAT, Ending.TRUNCATED, Ending.RESET)
CUT = ExpectedError(502, "bad_upstream_response", "api_error", "Bad upstream response")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def isolated(
    strict_upstream: ValidatingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clients]:
    """Clients of a separate gateway, so that its health state does not affect other tests."""
    state_dir: Path = tmp_path_factory.mktemp("wary")
    async with clients_of(state_dir, **pair_config(strict_upstream.address)) as clients:
        yield clients


def check_status(error: Exception, client: Format, result: ExpectedError) -> None:
    """An error that came instead of an answer."""
    if client is Format.MESSAGES:
        assert isinstance(error, anthropic.APIStatusError)
        kind = anthropic.BadRequestError if result.status == 400 else anthropic.InternalServerError
        assert isinstance(error, kind)
        body: Any = error.body
        assert (error.status_code, body["error"]["type"]) == (result.status, result.type)
        assert body["error"]["message"] == result.message
        assert body["request_id"] == error.request_id
    else:
        assert isinstance(error, openai.APIStatusError)
        expected = openai.BadRequestError if result.status == 400 else openai.InternalServerError
        assert isinstance(error, expected)
        assert error.status_code == result.status
        # The upstream's own code of a refusal is passed on, and not every format has one.
        assert result.code == (error.type if result.status == 400 else error.code)
        assert result.message in error.message
        assert error.request_id is not None


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def without_retries(isolated: Clients) -> None:
    """The retry budget is spent, so that each test gets its own error at once."""
    runtime = isolated.gateway.daemon.runtime
    runtime.health, runtime.retry_budget = Health(), RetryBudget()
    while runtime.retry_budget.try_acquire(asyncio.get_running_loop().time()):
        pass


troubles = pytest.mark.parametrize("trouble", Trouble, ids=lambda trouble: str(trouble.value))


@pytest.mark.parametrize("mode", [CallMode.CREATE, CallMode.STREAM], ids=lambda mode: mode.value)
@troubles
async def test_statuses(
    isolated: Clients, pair: Pair, vendor: ValidatingUpstream, trouble: Trouble, mode: CallMode
) -> None:
    vendor.play(Refused(trouble))
    conversation = isolated.conversation(pair.client, pair.model)
    conversation.ask("Hello?")
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await conversation.receive(mode)
    check_status(raised.value, pair.client, EXPECTED[trouble])


@pytest.mark.parametrize("mode", [CallMode.STREAM, CallMode.HELPER], ids=lambda mode: mode.value)
@troubles
async def test_an_error_event_before_any_other(
    isolated: Clients, pair: Pair, vendor: ValidatingUpstream, trouble: Trouble, mode: CallMode
) -> None:
    """As if it had been the status."""
    vendor.play(Broken(HALF_REPLY, 0, Ending.ERROR, trouble))
    conversation = isolated.conversation(pair.client, pair.model)
    conversation.ask("Hello?")
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await conversation.receive(mode)
    check_status(raised.value, pair.client, EXPECTED[trouble])


async def break_chat(
    clients: Clients, conversation: Conversation, options: Options, error: ExpectedError
) -> None:
    with pytest.raises(openai.APIError) as raised:
        async for _ in await clients.openai.chat.completions.create(
            **conversation.fields(options), stream=True
        ):
            pass
    assert not isinstance(raised.value, openai.APIStatusError)
    # The upstream's own code of a refusal is passed on, and not every format has one.
    assert error.code == (raised.value.type if error.status == 400 else raised.value.code)
    assert raised.value.message == error.message


async def break_messages(
    clients: Clients, conversation: Conversation, options: Options, error: ExpectedError
) -> None:
    with pytest.raises(anthropic.APIStatusError) as raised:
        async for _ in await clients.anthropic.messages.create(
            **conversation.fields(options), stream=True
        ):
            pass
    body: Any = raised.value.body
    assert (body["error"]["type"], body["error"]["message"]) == (error.type, error.message)


async def break_responses(
    clients: Clients, conversation: Conversation, options: Options, error: ExpectedError
) -> None:
    stream = await clients.openai.responses.create(**conversation.fields(options), stream=True)
    events: list[Any] = [event async for event in stream]
    last = events[-1]
    if last.type == "error":
        # Where the vendor itself ends like this, the native lane does not make it another.
        assert (last.code, last.message) == (error.code, error.message)
        assert conversation.model == Pair(Format.RESPONSES, Format.RESPONSES).model
        return
    assert last.type == "response.failed"
    assert (last.response.status, last.response.error.code) == ("failed", error.code)
    assert last.response.error.message == error.message
    assert last.response.id == events[0].response.id


BREAK = {
    Format.CHAT: break_chat,
    Format.MESSAGES: break_messages,
    Format.RESPONSES: break_responses,
}


def error_within_a_stream(pair: Pair, trouble: Trouble) -> ExpectedError:
    """The native lane passes on what the upstream itself says of its own failures."""
    if not pair.native or trouble not in (Trouble.BROKEN, Trouble.OVERLOADED):
        return EXPECTED[trouble]
    types = {Trouble.BROKEN: "api_error", Trouble.OVERLOADED: "overloaded_error"}
    codes = {Trouble.BROKEN: "server_error", Trouble.OVERLOADED: "server_is_overloaded"}
    return ExpectedError(503, codes[trouble], types[trouble], COMPLAINT)


PLACES = {
    "in a thought": (HALF_REPLY, 0.3),
    "in a text": (HALF_REPLY, 0.6),
    "in a call": (TOOL_CALLING, 0.6),
}


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.name.lower())
@pytest.mark.parametrize("place", PLACES)
async def test_an_interrupted_stream(
    isolated: Clients, pair: Pair, vendor: ValidatingUpstream, place: str, ending: Ending
) -> None:
    """By plain iteration and by the helper: it is told that this is not all."""
    text, share = PLACES[place]
    error = error_within_a_stream(pair, Trouble.OVERLOADED) if ending is Ending.ERROR else CUT
    vendor.play(Broken(text, share, ending), Broken(text, share, ending))
    conversation = isolated.conversation(pair.client, pair.model)
    conversation.ask("Hello?")
    options = Options(tools=(Tool("clock"),))
    await BREAK[pair.client](isolated, conversation, options, error)
    # The responses library has no error of its own for this.
    with pytest.raises((openai.APIError, anthropic.APIError, RuntimeError)):
        await conversation.helper(options)


@troubles
async def test_an_error_event_after_output(
    isolated: Clients, pair: Pair, vendor: ValidatingUpstream, trouble: Trouble
) -> None:
    vendor.play(Broken(HALF_REPLY, 0.6, Ending.ERROR, trouble))
    conversation = isolated.conversation(pair.client, pair.model)
    conversation.ask("Hello?")
    await BREAK[pair.client](
        isolated, conversation, Options(), error_within_a_stream(pair, trouble)
    )


@pytest.mark.parametrize("ending", CUTS, ids=lambda ending: ending.name.lower())
async def test_an_interrupted_body(
    isolated: Clients, pair: Pair, vendor: ValidatingUpstream, ending: Ending
) -> None:
    vendor.play(Broken(HALF_REPLY, 0.7, ending))
    conversation = isolated.conversation(pair.client, pair.model)
    conversation.ask("Hello?")
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await conversation.create(Options())
    check_status(raised.value, pair.client, CUT)


@pytest.mark.parametrize("ending", CUTS, ids=lambda ending: ending.name.lower())
async def test_a_stream_cut_before_its_first_event(
    isolated: Clients, pair: Pair, vendor: ValidatingUpstream, ending: Ending
) -> None:
    """An empty stream is an error like a status."""
    vendor.play(Broken(HALF_REPLY, 0, ending))
    conversation = isolated.conversation(pair.client, pair.model)
    conversation.ask("Hello?")
    with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)):
        await conversation.stream(Options())
