"""The page of channels: how accounts are, what may be done, and a test with a real request."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.console.hostile_text import DISPLAYED_TEXT, HOSTILE_TEXT, is_harmless, preformatted_texts
from tests.console.visitor import Visitor
from tests.support.gateway import ACCOUNT, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream, json_response

PAGE = "/console/channels"
ADDRESS = f"{PAGE}/chat-main/{ACCOUNT}"


async def test_all_channels_are_there(visitor: Visitor) -> None:
    shown = await visitor.get(PAGE)
    assert shown.status == 200
    for format in Format:
        assert f"{format}-main" in shown.text
    assert shown.text.count("healthy") == 3


async def test_an_account_that_is_asked(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_stream(Format.CHAT), json_response(HOSTILE_TEXT.encode(), 500))
    await gateway.post(Format.CHAT, stream=True)
    await gateway.post(Format.CHAT)
    await gateway.rows(2)
    shown = await visitor.get(PAGE)
    assert "beta-5.4 healthy" in shown.text
    assert "HTTP status 500" in shown.text
    assert is_harmless(shown.html)


async def test_a_spent_account_is_reset(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(json_response({"error": {"message": "bad key"}}, 401))
    await gateway.post(Format.CHAT)
    shown = await visitor.get(PAGE)
    failed = shown.text.count("auth failed")
    assert failed == 3
    assert " UTC" in shown.text
    shown = await visitor.post(f"{ADDRESS}/reset")
    assert f"chat-main/{ACCOUNT} reset" in shown.text
    assert shown.text.count("auth failed") == failed - 1


async def test_disabled_and_enabled(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    for format in Format:
        await visitor.post(f"{PAGE}/{format}-main/{ACCOUNT}/disable")
    shown = await visitor.get(PAGE)
    assert shown.text.count("Enable") == 3
    assert (await gateway.post(Format.CHAT)).status == 503
    shown = await visitor.post(f"{ADDRESS}/enable")
    assert f"chat-main/{ACCOUNT} enabled." in shown.text
    assert (await gateway.post(Format.CHAT)).status == 200


async def test_a_test_that_works_is_told_once(upstream: ScriptedUpstream, visitor: Visitor) -> None:
    upstream.respond_with(fixture_stream(Format.CHAT))
    shown = await visitor.post(f"{ADDRESS}/try", model="alpha-sonnet-4-6")
    assert shown.path == PAGE
    assert f"chat-main/{ACCOUNT}: test succeeded" in shown.text
    assert "alpha-sonnet-4-6 (upstream-model, chat)" in shown.text
    assert "12 in, 4 out" in shown.text
    assert len(upstream.requests) == 1
    assert "test succeeded" not in (await visitor.get(PAGE)).text


async def test_a_test_that_fails_tells_the_real_error(
    upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(json_response(HOSTILE_TEXT.encode(), 500))
    shown = await visitor.post(f"{ADDRESS}/try", model="beta-5.4")
    assert f"chat-main/{ACCOUNT}: test failed" in shown.text
    assert DISPLAYED_TEXT in preformatted_texts(shown.html)
    assert is_harmless(shown.html)


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        (f"{PAGE}/nobody/{ACCOUNT}/reset", {}),
        (f"{PAGE}/nobody/{ACCOUNT}/disable", {}),
        (f"{PAGE}/chat-main/nobody/try", {}),
        (f"{ADDRESS}/try", {"model": "nobody-has-it"}),
    ],
)
async def test_who_is_not_there(visitor: Visitor, address: str, fields: dict[str, str]) -> None:
    shown = await visitor.post(address, **fields)
    assert shown.status == 404
    assert "no account" in shown.text or "no model" in shown.text


async def test_looking_changes_nothing(visitor: Visitor) -> None:
    for what in ("reset", "disable", "enable", "try"):
        assert (await visitor.get(f"{ADDRESS}/{what}")).status == 405
