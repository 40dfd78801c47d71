"""What goes straight to a handler, and that it is answered as by the framework's way."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.house import PATHS, House, prompt
from tests.scripted import ScriptedUpstream, reply


@pytest.mark.parametrize("spoken", Format)
async def test_errors_bear_the_headers_of_every_answer(house: House, spoken: Format) -> None:
    answer = await house.ask(spoken, model="nobody-has-it")
    assert answer.status in (404, 503)
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert answer.headers["server"] == "model-gateway"
    assert (await house.row()).id == answer.headers["x-request-id"]


@pytest.mark.parametrize("spoken", Format)
async def test_another_method_is_refused(house: House, spoken: Format) -> None:
    async with house.http.put(PATHS[spoken], data=b"{}") as answer:
        assert answer.status == 405


async def test_a_path_that_is_spelled_otherwise(house: House, upstream: ScriptedUpstream) -> None:
    """The framework decides what it means."""
    upstream.play(reply("chat"))
    for path, status in (("/v1/chat/completions?x=1", 200), ("/v1/chat/completions/", 404)):
        assert (await house.ask(Format.CHAT, path=path)).status == status


async def test_a_client_that_waits_for_a_word_before_its_body(
    house: House, upstream: ScriptedUpstream
) -> None:
    upstream.play(reply("chat"))
    answer = await house.ask(Format.CHAT, prompt(Format.CHAT), headers={"expect": "100-continue"})
    assert answer.status == 200


async def test_tokens_are_counted(house: House, upstream: ScriptedUpstream) -> None:
    answer = await house.ask(Format.MESSAGES, path="/v1/messages/count_tokens")
    assert answer.headers["x-request-id"]
