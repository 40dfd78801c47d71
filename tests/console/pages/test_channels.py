"""The page of channels: states of accounts, actions, and the test with a real request."""

from __future__ import annotations

import re

import pytest

from gateway.core.formats import Format
from tests.console.hostile_text import DISPLAYED_TEXT, HOSTILE_TEXT, is_harmless, preformatted_texts
from tests.console.visitor import Visitor
from tests.support.gateway import ACCOUNT, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream, json_response

PAGE = "/console/channels"
PATH = f"{PAGE}/chat-main/{ACCOUNT}"


async def test_all_channels_are_listed(visitor: Visitor) -> None:
    page = await visitor.get(PAGE)
    assert page.status == 200
    for format in Format:
        assert f"{format}-main" in page.text
    assert page.text.count("healthy") == 3


async def test_an_account_in_use(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_stream(Format.CHAT), json_response(HOSTILE_TEXT.encode(), 500))
    await gateway.post(Format.CHAT, stream=True)
    await gateway.post(Format.CHAT)
    await gateway.rows(2)
    page = await visitor.get(PAGE)
    assert "beta-5.4 healthy" in page.text
    assert "HTTP status 500" in page.text
    assert is_harmless(page.html)


async def test_the_last_24_hours_of_a_channel(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    assert "Last 24 hours" not in (await visitor.get(PAGE)).text
    upstream.respond_with(fixture_stream(Format.CHAT), json_response({"error": {}}, 500))
    await gateway.post(Format.CHAT, stream=True)
    await gateway.post(Format.CHAT)
    await gateway.rows(2)
    page = await visitor.get(PAGE)
    found = re.findall(r"Last 24 hours: (.{,30}) failed", page.text)
    assert found == ["1 request , 0 %", "1 request , 100 %"]
    assert "time to first token: median" in page.text


async def test_what_an_upstream_refuses(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    refusal = json_response({"error": {"message": "Unknown parameter: 'verbosity'."}}, 400)
    upstream.respond_with(refusal, fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT, verbosity="low")
    await gateway.rows(1)
    page = await visitor.get(PAGE)
    assert 'traits: {refuses: ["verbosity"]}' in page.text


async def test_reset(gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor) -> None:
    upstream.respond_with(json_response({"error": {"message": "bad key"}}, 401))
    await gateway.post(Format.CHAT)
    page = await visitor.get(PAGE)
    failed = page.text.count("auth failed")
    assert failed == 3
    assert " UTC" in page.text
    page = await visitor.post(f"{PATH}/reset")
    assert f"chat-main/{ACCOUNT} reset" in page.text
    assert page.text.count("auth failed") == failed - 1


async def test_disable_and_enable(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    for format in Format:
        await visitor.post(f"{PAGE}/{format}-main/{ACCOUNT}/disable")
    page = await visitor.get(PAGE)
    assert page.text.count("Enable") == 3
    assert (await gateway.post(Format.CHAT)).status == 503
    page = await visitor.post(f"{PATH}/enable")
    assert f"chat-main/{ACCOUNT} enabled." in page.text
    assert (await gateway.post(Format.CHAT)).status == 200


async def test_a_successful_test_is_shown_once(
    upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_stream(Format.CHAT))
    page = await visitor.post(f"{PATH}/try", model="alpha-sonnet-4-6")
    assert page.path == PAGE
    assert f"chat-main/{ACCOUNT}: test succeeded" in page.text
    assert "alpha-sonnet-4-6 (upstream-model, chat)" in page.text
    assert "12 in, 4 out" in page.text
    assert len(upstream.requests) == 1
    assert "test succeeded" not in (await visitor.get(PAGE)).text


async def test_a_failed_test_shows_the_upstream_error(
    upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(json_response(HOSTILE_TEXT.encode(), 500))
    page = await visitor.post(f"{PATH}/try", model="beta-5.4")
    assert f"chat-main/{ACCOUNT}: test failed" in page.text
    assert DISPLAYED_TEXT in preformatted_texts(page.html)
    assert is_harmless(page.html)


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        (f"{PAGE}/nobody/{ACCOUNT}/reset", {}),
        (f"{PAGE}/nobody/{ACCOUNT}/disable", {}),
        (f"{PAGE}/chat-main/nobody/try", {}),
        (f"{PATH}/try", {"model": "nobody-has-it"}),
    ],
)
async def test_unknown_accounts_and_models(
    visitor: Visitor, address: str, fields: dict[str, str]
) -> None:
    page = await visitor.post(address, **fields)
    assert page.status == 404
    assert "no account" in page.text or "no model" in page.text


async def test_actions_need_post(visitor: Visitor) -> None:
    for what in ("reset", "disable", "enable", "try"):
        assert (await visitor.get(f"{PATH}/{what}")).status == 405
