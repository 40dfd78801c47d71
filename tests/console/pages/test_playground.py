"""The playground: what a client would get, and no key on the page."""

from __future__ import annotations

import re

import pytest

from gateway.console.pages import playground
from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.console.hostile_text import HOSTILE_TEXT, is_harmless
from tests.console.visitor import Visitor
from tests.support.gateway import BETA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_stream, json_response

PATH = "/console/playground"


@pytest.mark.parametrize("format", Format)
async def test_a_prompt_in_each_format(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format))
    before = len(gateway.daemon.runtime.registry._by_digest)
    page = await visitor.post(PATH, key=gateway.token.id, model=BETA, format=format, prompt="Hello")
    assert page.status == 200
    assert "Status 200" in page.text
    text = re.search(r'aria-label="Text of the reply">([^<]*)<', page.html)
    assert text is not None
    assert text[1] == "Hello, world!"
    assert "data: {" in page.text
    row = await gateway.row()
    assert (row.token_id, row.state) == (gateway.token.id, ExchangeState.OK)
    assert f"/console/logs/{row.id}" in page.html
    token = await gateway.operations.get_key(gateway.token.id)
    assert token.first_used_at is None, "the first client of the key is still to come"
    assert re.findall(r"sk-\w{12,}", page.html) == []
    assert len(gateway.daemon.runtime.registry._by_digest) == before
    upstream.respond_with(fixture_stream(format))
    assert (await gateway.post(format, stream=True)).status == 200, "the key itself is as before"
    assert "playground.send" in (await visitor.get("/console/audit")).text


async def test_errors_are_those_of_the_client(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({"error": {"message": HOSTILE_TEXT}}, 400))
    page = await visitor.post(PATH, key=gateway.token.id, model=BETA, format="chat", prompt="Hello")
    assert "Status 400" in page.text
    assert is_harmless(page.html)
    page = await visitor.post(
        PATH, key=gateway.token.id, model="nothing", format="chat", prompt="Hello"
    )
    assert "Status 503" in page.text


async def test_a_long_reply_is_cut(
    visitor: Visitor,
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(playground, "MAX_REPLY", 100)
    upstream.respond_with(fixture_stream(Format.CHAT))
    page = await visitor.post(PATH, key=gateway.token.id, model=BETA, format="chat", prompt="Hello")
    assert "Only the first" in page.text


async def test_what_cannot_be_sent_is_said_at_its_input(visitor: Visitor) -> None:
    good = {"key": "tests", "model": BETA, "format": "chat", "prompt": "Hello"}
    for name, wrong in (
        ("key", "nobody"),
        ("model", ""),
        ("prompt", " "),
        ("prompt", "a" * 40_000),
        ("format", "soap"),
    ):
        page = await visitor.post(PATH, **(good | {name: wrong}))
        assert page.status == 422
        assert f'id="{name}-error"' in page.html
