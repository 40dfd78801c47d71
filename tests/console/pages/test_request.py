"""The page of one request: summary, timing, upstream errors, all fields."""

from __future__ import annotations

from gateway.core.formats import Format
from gateway.store.records import RequestRow
from tests.console.hostile_text import DISPLAYED_TEXT, HOSTILE_TEXT, is_harmless, preformatted_texts
from tests.console.visitor import Visitor
from tests.support.gateway import ALPHA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response


async def test_summary_timing_and_every_field(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT)
    row = await gateway.row()
    page = await visitor.get(f"/console/logs/{row.id}")
    assert page.status == 200
    for text in (
        "tests called /v1/chat/completions for",
        "with upstream-model (chat, native)",
        "Response to the client: 200 in",
        "waiting for the first token of chat-main/account-of-the-house",
    ):
        assert text in page.text
    for name in RequestRow._fields:
        if name != "upstream_error":
            assert f"<dt>{name}</dt>" in page.html
    assert '<svg class="bar" role="img"' in page.html
    assert "Upstream error" not in page.text
    assert is_harmless(page.html)


async def test_upstream_errors(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(json_response(HOSTILE_TEXT.encode(), 500))
    assert (await gateway.post(Format.CHAT)).status == 503
    row = await gateway.row()
    page = await visitor.get(f"/console/logs/{row.id}")
    assert "1. chat-main/account-of-the-house: status 500" in page.text
    assert "failed attempt of chat-main/account-of-the-house" in page.text
    assert DISPLAYED_TEXT in preformatted_texts(page.html)
    assert is_harmless(page.html)


async def test_client_input_is_escaped(gateway: RunningGateway, visitor: Visitor) -> None:
    agent = "<script>alert(1)</script>\u202e"
    await gateway.post(Format.CHAT, model="<b>no\x1b[31m", headers={"user-agent": agent})
    row = await gateway.row()
    page = await visitor.get(f"/console/logs/{row.id}")
    assert "<b>no\\x1b[31m" in page.text
    assert is_harmless(page.html)


async def test_dropped_in_translation(
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
    page = await visitor.get(f"/console/logs/{row.id}")
    assert ("Dropped in translation" in page.text) == bool(row.dropped)


async def test_unknown_requests(visitor: Visitor) -> None:
    for path in ("/console/logs/req_000000000000000000000000", "/console/logs/req_<b>"):
        page = await visitor.get(path)
        assert page.status == 404
        assert is_harmless(page.html)


async def test_a_rejected_request(gateway: RunningGateway, visitor: Visitor) -> None:
    await gateway.post(Format.MESSAGES, model="no-such-model")
    row = await gateway.row()
    page = await visitor.get(f"/console/logs/{row.id}")
    assert "No upstream was called." in page.text
    assert ALPHA not in page.text
