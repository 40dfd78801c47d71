"""The page of logs: what is looked for is found, what others wrote is text, and rows arrive."""

from __future__ import annotations

import asyncio
import re
from html import unescape

import pytest

from gateway.core.formats import Format
from tests.console.hostile_text import HOSTILE_TEXT, is_harmless
from tests.console.visitor import Visitor
from tests.support.gateway import ALPHA, BETA, RunningGateway
from tests.support.upstream import (
    Ending,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

LOGS = "/console/logs"


def ids(html: str) -> list[str]:
    return re.findall(r'<tr data-id="(req_\w+)"', html)


def link(html: str, words: str) -> str | None:
    """Where the link of that text leads."""
    found = re.search(rf'<a [^>]*href="([^"]*)"[^>]*>{words}</a>', html)
    return unescape(found[1]) if found else None


async def ask(
    gateway: RunningGateway, upstream: ScriptedUpstream, times: int = 1, **fields: str
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    for _ in range(times):
        assert (await gateway.post(Format.CHAT, **fields)).status == 200


async def fail(
    gateway: RunningGateway, upstream: ScriptedUpstream, said: str, status: int = 400
) -> None:
    upstream.respond_with(json_response(said.encode(), status))
    assert (await gateway.post(Format.CHAT)).status == status


async def test_nothing_has_come(visitor: Visitor) -> None:
    shown = await visitor.get(LOGS)
    assert shown.status == 200
    assert "There are no requests yet." in shown.text


async def test_a_row_tells_what_happened(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream)
    await fail(gateway, upstream, "too many cooks")
    older, newer = await gateway.rows(2)
    shown = await visitor.get(LOGS)
    assert ids(shown.html) == [newer.id, older.id]
    for words in ("tests", BETA, "chat-main", "error", "400", "too many cooks"):
        assert words in shown.text
    assert f'href="{LOGS}/{newer.id}"' in shown.html


async def test_what_is_looked_for_is_found(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream)
    await ask(gateway, upstream, model=ALPHA)
    await fail(gateway, upstream, "Too Many cooks")
    await gateway.post(Format.CHAT, model="nobody-has-it")
    beta, alpha, failed, refused = await gateway.rows(4)
    searches = {
        f"model={ALPHA}": [alpha],
        "model=nobody-has-it": [refused],
        "status=4xx": [failed],
        "status=200": [alpha, beta],
        "state=error": [failed],
        "text=too+many": [failed],
        "code=model_not_found": [refused],
        f"id={beta.id}": [beta],
        "key=tests": [refused, failed, alpha, beta],
        f"key={gateway.token.id}&status=2xx": [alpha, beta],
        "channel=chat-main&group=default": [failed, alpha, beta],
        "channel=messages-main": [],
        "since=1h": [refused, failed, alpha, beta],
        "until=1h": [],
        "since=2001-01-01&until=2001-01-02T12:00": [],
        "account=nobody": [],
        "model=": [refused, failed, alpha, beta],
    }
    for query, rows in searches.items():
        shown = await visitor.get(f"{LOGS}?{query}")
        assert (query, ids(shown.html)) == (query, [row.id for row in rows])
        if not rows:
            assert "No requests match." in shown.text


async def test_what_is_typed_stays_in_the_form(visitor: Visitor) -> None:
    shown = await visitor.get(f'{LOGS}?text=a"<b>&state=error&since=24h')
    assert shown.value("text") == 'a"<b>'
    assert shown.value("since") == "24h"
    assert '<option value="error" selected>' in shown.html
    assert is_harmless(shown.html)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=yesterday", "Must be a date such as"),
        ("status=abc", "Must be a status such as 503 or a class such as 5xx."),
        ("state=sleeping", "Input should be"),
        ("key=nobody", "No key has this name."),
    ],
)
async def test_what_cannot_be_read_is_told_beside_its_field(
    visitor: Visitor, query: str, words: str
) -> None:
    shown = await visitor.get(f"{LOGS}?{query}")
    assert shown.status == 400
    assert words in shown.text
    assert 'aria-invalid="true"' in shown.html
    assert ids(shown.html) == []
    assert (await visitor.get(f"{LOGS}/tail?{query}")).status == 400


async def test_a_name_that_several_keys_have_is_no_answer(
    gateway: RunningGateway, visitor: Visitor
) -> None:
    twins = [(await gateway.operations.create_key("twin", "default"))[0].id for _ in range(2)]
    shown = await visitor.get(f"{LOGS}?key=twin")
    assert f"Several keys have this name: {', '.join(twins)}." in shown.text


async def test_pages_lead_through_all_rows_and_back(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream, 120)
    rows = [row.id for row in reversed(await gateway.rows(100))]
    seen: list[list[str]] = []
    path: str | None = f"{LOGS}?model={BETA}"
    while path:
        shown = await visitor.get(path)
        seen.append(ids(shown.html))
        path = link(shown.html, "Older")
    assert [len(page) for page in seen] == [50, 50, 20]
    assert [each for page in seen for each in page][:100] == rows
    back = [seen.pop()]
    while path := link(shown.html, "Newer"):
        shown = await visitor.get(path)
        back.append(ids(shown.html))
    assert back[1:3] == [seen[1], seen[0]]
    assert "data-tail" not in shown.html  # what follows a page that was gone back to is not new
    newest = link(shown.html, "Newest")
    assert newest is not None
    assert ids((await visitor.get(newest)).html) == seen[0]


async def test_what_upstreams_say_is_text(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await fail(gateway, upstream, HOSTILE_TEXT)
    await gateway.post(Format.CHAT, model="<b>\u202ename")
    await gateway.rows(2)
    for path in (LOGS, f"{LOGS}/tail"):
        shown = await visitor.get(path)
        assert "<script>alert(1)</script>" in shown.text
        assert "\\u202ename" in shown.text
        assert is_harmless(shown.html)


async def test_a_megabyte_is_cut(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await fail(gateway, upstream, "x" * 1_000_000)
    row = await gateway.row()
    assert len((await visitor.get(LOGS)).html) < 40_000
    assert len((await visitor.get(f"{LOGS}/{row.id}")).html) < 40_000


async def test_rows_arrive_and_end(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream)
    first = await gateway.row()
    shown = await visitor.get(f"{LOGS}?model={BETA}")
    tail = re.search(r'data-tail="([^"]*)" data-feed="[^"]*" data-newest="([^"]*)"', shown.html)
    assert tail is not None
    address, newest = map(unescape, tail.groups())
    assert newest == first.id

    frames = by_frame(fixture_stream(Format.CHAT))
    upstream.respond_with(frames.with_changes(chunks=frames.chunks[:2], ending=Ending.STALLED))
    running = asyncio.ensure_future(gateway.post(Format.CHAT, stream=True))
    try:
        await upstream.wait_for_request(2)
        async with asyncio.timeout(5):
            while len(rows := ids((arrived := await visitor.get(address)).html)) < 2:
                await asyncio.sleep(0.01)
        assert rows[1] == first.id
        assert f'<tr data-id="{rows[0]}" data-running>' in arrived.html
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    async with asyncio.timeout(5):
        while "data-running" in (await visitor.get(address)).html:
            await asyncio.sleep(0.01)
    later = await visitor.get(f"{address}&after=req_{'f' * 24}&watched={rows[0]},req_unknown")
    assert ids(later.html) == [rows[0]]
    assert "client gone" in later.text


async def test_the_export_has_the_rows_that_are_looked_for(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream)
    await ask(gateway, upstream, model=ALPHA)
    _, alpha = await gateway.rows(2)
    shown = await visitor.get(f"{LOGS}?model={ALPHA}&since=1h&key=tests")
    for words in ("Export CSV", "Export JSON lines"):
        address = link(shown.html, words)
        assert address is not None
        exported = await visitor.get(address)
        assert exported.status == 200
        assert re.findall(r"req_[0-9a-f]{24}", exported.html) == [alpha.id]
