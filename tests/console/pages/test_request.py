"""The page of one request: its story, where its time went, what the upstream really said."""

from __future__ import annotations

from gateway.core.formats import Format
from gateway.store.records import RequestRow
from tests.console.hostile_text import DISPLAYED_TEXT, HOSTILE_TEXT, is_harmless, preformatted_texts
from tests.console.visitor import Visitor
from tests.support.gateway import ALPHA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response


async def test_a_story_with_every_field(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT)
    row = await gateway.row()
    shown = await visitor.get(f"/console/logs/{row.id}")
    assert shown.status == 200
    for words in (
        "tests called /v1/chat/completions for",
        "with upstream-model (chat, native)",
        "Response to the client: 200 in",
        "waiting for the first token of chat-main/account-of-the-house",
    ):
        assert words in shown.text
    for name in RequestRow._fields:
        if name != "upstream_error":
            assert f"<dt>{name}</dt>" in shown.html
    assert '<svg class="bar" role="img"' in shown.html
    assert "Upstream error" not in shown.text
    assert is_harmless(shown.html)


async def test_the_upstreams_own_words(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(json_response(HOSTILE_TEXT.encode(), 500))
    assert (await gateway.post(Format.CHAT)).status == 503
    row = await gateway.row()
    shown = await visitor.get(f"/console/logs/{row.id}")
    assert "1. chat-main/account-of-the-house: status 500" in shown.text
    assert "failed attempt of chat-main/account-of-the-house" in shown.text
    assert DISPLAYED_TEXT in preformatted_texts(shown.html)
    assert is_harmless(shown.html)


async def test_what_clients_send_is_text(gateway: RunningGateway, visitor: Visitor) -> None:
    agent = "<script>alert(1)</script>\u202e"
    await gateway.post(Format.CHAT, model="<b>no\x1b[31m", headers={"user-agent": agent})
    row = await gateway.row()
    shown = await visitor.get(f"/console/logs/{row.id}")
    assert "<b>no\\x1b[31m" in shown.text
    assert is_harmless(shown.html)


async def test_what_was_dropped_between_formats(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    only_chat = await gateway.key_for_models("beta-*")
    body = {"model": "beta-5.4", "max_tokens": 9, "top_k": 5}
    await gateway.post(
        Format.MESSAGES,
        messages=[{"role": "user", "content": "Hello"}],
        key=only_chat,
        **body,
    )
    row = await gateway.row()
    shown = await visitor.get(f"/console/logs/{row.id}")
    assert ("Dropped in translation" in shown.text) == bool(row.dropped)


async def test_an_address_of_nobody(visitor: Visitor) -> None:
    for path in ("/console/logs/req_000000000000000000000000", "/console/logs/req_<b>"):
        shown = await visitor.get(path)
        assert shown.status == 404
        assert is_harmless(shown.html)


async def test_a_request_that_was_refused(gateway: RunningGateway, visitor: Visitor) -> None:
    await gateway.post(Format.MESSAGES, model="no-such-model")
    row = await gateway.row()
    shown = await visitor.get(f"/console/logs/{row.id}")
    assert "No upstream was called." in shown.text
    assert ALPHA not in shown.text
