"""The page of one request: summary, timing, upstream errors, all fields."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from gateway.admin.units import format_amount
from gateway.console.pages.request import _format_field
from gateway.core.formats import Format
from gateway.core.limits import Currency
from gateway.store.log.merged_rejections import OWN_ROWS
from gateway.store.records import RequestRow
from tests.console.hostile_text import DISPLAYED_TEXT, HOSTILE_TEXT, is_harmless, preformatted_texts
from tests.console.visitor import Visitor, signed_in_visitor
from tests.support.gateway import ALPHA, RunningGateway
from tests.support.searches import found, model_reply, search, search_tool, searching_gateway
from tests.support.upstream import (
    Ending,
    ScriptedUpstream,
    by_frame,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)


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
        "waiting for the first token of chat-main/account-for-tests",
    ):
        assert text in page.text
    for name in RequestRow._fields:
        if name != "upstream_error":
            assert f"<dt>{name}</dt>" in page.html
    assert page.html.count('<svg class="bar" role="img"') == 2  # the gateway, the attempt
    assert "Upstream error" not in page.text
    assert is_harmless(page.html)


async def test_upstream_errors(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(json_response(HOSTILE_TEXT.encode(), 500))
    assert (await gateway.post(Format.CHAT)).status == 503
    row = await gateway.row()
    page = await visitor.get(f"/console/logs/{row.id}")
    assert "1. chat-main/account-for-tests: status 500" in page.text
    assert "failed attempt of chat-main/account-for-tests" in page.text
    assert DISPLAYED_TEXT in preformatted_texts(page.html)
    assert is_harmless(page.html)


async def test_web_searches(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, Format.CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(Format.CHAT, search(HOSTILE_TEXT[:400]), search("b", "call_2")),
            model_reply(Format.CHAT, "Yes."),
        )
        searching.endpoint.respond_with(found(), json_response({}, 500))
        await searching.gateway.post(Format.MESSAGES, **search_tool(Format.MESSAGES))
        row = await searching.gateway.row()
        async with signed_in_visitor(searching.gateway) as visitor:
            page = await visitor.get(f"/console/logs/{row.id}")
            key_page = await visitor.get(f"/console/tokens/{row.token_id}")
        assert "Web searches" in page.text and "Web searches" in key_page.text
        assert "unavailable: status 500" in page.text
        assert "1 web search" in page.text
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
    assert "no such model in the catalog" in page.text
    assert "Upstream error" not in page.text
    assert ALPHA not in page.text


async def test_a_refused_request_tells_which_limit_whose_and_until_when(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    """As the client reads it: in the row, on the page, in the list and by the search."""
    await gateway.operations.update_key(gateway.token.id, limits={"budget_day": 1})
    answer = await gateway.post(Format.CHAT)
    message = (await answer.json())["error"]["message"]
    assert "key tests: daily budget of 0.000001 units" in message
    row = await gateway.row()
    assert (row.error_message, row.upstream_error) == (message, None)
    page = await visitor.get(f"/console/logs/{row.id}")
    assert f"rejected. {message}" in " ".join(page.text.split())
    assert "Upstream error" not in page.text
    assert message[:100] in (await visitor.get("/console/logs?text=daily+budget")).text


async def test_a_permission_that_is_missing_is_named(
    gateway: RunningGateway, visitor: Visitor
) -> None:
    await gateway.operations.update_key(gateway.token.id, models=("beta-*",))
    answer = await gateway.post(Format.MESSAGES, model=ALPHA)
    assert "beta-*" not in await answer.text()
    row = await gateway.row()
    assert row.error_message == (
        f"The model {ALPHA} is not allowed for this key (the key's models are beta-*)"
    )
    page = await visitor.get(f"/console/logs/{row.id}")
    assert row.error_message in page.text


async def test_a_stream_that_breaks_off_tells_what_came(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    frames = by_frame(fixture_stream(Format.MESSAGES)).chunks[:2]
    broken = event_stream(b"".join(frames), ending=Ending.TRUNCATED)
    upstream.respond_with(broken)
    await gateway.post(Format.MESSAGES, stream=True)
    row = await gateway.row()
    assert row.upstream_status == 200
    assert (row.upstream_error or "").endswith("(after status 200 and 2 events)")
    first, *_ = await gateway.operations.list_attempts(row.id)
    assert first.status == 200
    assert (first.error or "").endswith("(after status 200 and 2 events)")
    page = await visitor.get(f"/console/logs/{row.id}")
    assert "messages-main/account-for-tests: status 200" in page.text
    assert "No response" not in page.text


async def test_a_first_turn_was_kept_by_no_account(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    turns = [{"role": "user", "content": "Hello"}]
    await gateway.post(Format.CHAT, messages=turns)
    row = await gateway.row()
    assert (row.affinity, row.affinity_kept) == ("prompt prefix", None)
    page = await visitor.get(f"/console/logs/{row.id}")
    assert "Session affinity by prompt prefix." in page.text
    turns += [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "How?"}]
    await gateway.post(Format.CHAT, messages=turns)
    assert (await gateway.rows(2))[1].affinity_kept == "yes"


async def test_refused_requests_that_share_a_row(
    gateway: RunningGateway, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.log.recorder.WINDOW", 1.0)
    await gateway.operations.update_key(gateway.token.id, limits={"requests_per_minute": 0})
    for _ in range(OWN_ROWS + 5):
        assert (await gateway.post(Format.CHAT)).status == 429
    row = (await gateway.rows(OWN_ROWS + 1))[-1]
    assert row.requests == 5
    page = await visitor.get(f"/console/logs/{row.id}")
    assert "The last of 5 requests that were refused alike." in page.text
    assert "rejected ×5" in (await visitor.get("/console/logs")).text
    assert (await gateway.operations.get_key(gateway.token.id)).requests == OWN_ROWS + 5


async def test_the_chain_of_a_stored_response(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES))
    previous: dict[str, str] = {}
    for _ in range(3):
        answer = await gateway.post(Format.RESPONSES, **previous)
        previous = {"previous_response_id": (await answer.json())["id"]}
    rows = await gateway.rows(3)
    await gateway.daemon.runtime.responses.flush()
    page = await visitor.get(f"/console/logs/{rows[1].id}")
    assert "Stored response" in page.text
    links = [f'href="/console/logs/{row.id}"' in page.html for row in rows]
    assert links == [True, False, True]
    assert "this request" in page.text
    assert is_harmless(page.html)
    await gateway.post(Format.RESPONSES, store=False)
    (*_, row) = await gateway.rows(4)
    assert "Stored response" not in (await visitor.get(f"/console/logs/{row.id}")).text


async def test_a_command_that_asks_the_same(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    """It runs, with the key in the environment."""
    for format in Format:
        upstream.respond_with(fixture_reply(format))
        await gateway.post(format)
        row = (await gateway.rows(1))[-1]
        page = await visitor.get(f"/console/logs/{row.id}")
        command = page.inside("curl")
        assert command is not None and gateway.key not in page.html
        process = await asyncio.create_subprocess_shell(
            f"{command} --max-time 10 -o /dev/null -w '%{{http_code}}'",
            env={"PATH": os.environ["PATH"], "GATEWAY_KEY": gateway.key},
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await process.communicate())[0] == b"200", command
        again = (await gateway.rows(2))[-1]
        assert (again.endpoint, again.model) == (row.endpoint, row.model)


async def test_a_rejected_request_has_no_bar(gateway: RunningGateway, visitor: Visitor) -> None:
    await gateway.post(Format.CHAT, model="nobody-has-it")
    page = await visitor.get(f"/console/logs/{(await gateway.row()).id}")
    assert "No upstream was called." in page.text
    assert '<svg class="bar"' not in page.html
    assert re.search('<span class="state outcome-permission" title="rejected, status', page.html)


def test_dollars_are_no_units() -> None:
    """`usd_micro` was shown in units."""
    assert _format_field("usd_micro", 6304) == f"6304 ({format_amount(6304, Currency.USD)})"
    assert _format_field("cost_micro", 6304) == "6304 (0.006304 units)"
