"""The page of logs: filters, pagination, escaping, and new rows."""

from __future__ import annotations

import asyncio
import re
import time
from html import unescape

import pytest

from gateway.core.formats import Format
from gateway.store.log.pages import first_id
from gateway.store.records import started_us
from tests.console.hostile_text import HOSTILE_TEXT, is_harmless
from tests.console.visitor import Visitor
from tests.store.sample_rows import request_id, settlement
from tests.support.gateway import ALPHA, BETA, RunningGateway
from tests.support.slow_search import slow_down
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


def link(html: str, text: str) -> str | None:
    """The target of the link with that text."""
    match = re.search(rf'<a [^>]*href="([^"]*)"[^>]*>{text}</a>', html)
    return unescape(match[1]) if match else None


async def ask(
    gateway: RunningGateway, upstream: ScriptedUpstream, times: int = 1, **fields: str
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    for _ in range(times):
        assert (await gateway.post(Format.CHAT, **fields)).status == 200


async def fail(
    gateway: RunningGateway, upstream: ScriptedUpstream, body: str, status: int = 400
) -> None:
    upstream.respond_with(json_response(body.encode(), status))
    assert (await gateway.post(Format.CHAT)).status == status


async def test_no_requests(visitor: Visitor) -> None:
    page = await visitor.get(LOGS)
    assert page.status == 200
    assert "There are no requests yet." in page.text


async def test_columns_of_a_row(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream)
    await fail(gateway, upstream, "too many cooks")
    older, newer = await gateway.rows(2)
    page = await visitor.get(LOGS)
    assert ids(page.html) == [newer.id, older.id]
    for text in ("tests", BETA, "chat-main", "upstream error", "success", "400: too many cooks"):
        assert text in page.text
    assert f'href="{LOGS}/{newer.id}"' in page.html
    assert re.search(r'class="reason" title="[^"]*400: too many cooks"', page.html)


async def test_cells_and_views_are_filters(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    """Each adds to the filters that there are; chips remove one."""
    await ask(gateway, upstream)
    await fail(gateway, upstream, "too many cooks")
    await gateway.post(Format.CHAT, model="nobody-has-it")
    good, failed, refused = [row.id for row in await gateway.rows(3)]
    page = await visitor.get(f"{LOGS}?since=1h")
    for text, found in (("tests", [refused, failed, good]), (BETA, [failed, good])):
        target = link(page.html, text)
        assert target is not None and "since=1h" in target
        assert ids((await visitor.get(target)).html) == found
    for text, found in (("success", [good]), ("permission", [refused])):
        page = await visitor.get(link(page.html, text) or "")
        assert ids(page.html) == found
        chip = re.search(r'<a href="([^"]*)" aria-label="Remove the filter Outcome">', page.html)
        assert chip is not None
        page = await visitor.get(unescape(chip[1]))
        assert ids(page.html) == [refused, failed, good]
    for view, found in (
        ("All", [refused, failed, good]),
        ("Errors", [failed]),
        ("Slow", []),
        ("Retried", []),
        ("Rejected", [refused]),
        ("Expensive", []),
    ):
        target = link(page.html, view)
        assert target is not None and "since=1h" in target
        chosen = await visitor.get(target)
        assert (view, ids(chosen.html)) == (view, found)
        assert re.search(rf'aria-current="true">{view}</a>', chosen.html)


async def test_slow_retried_and_expensive_requests(
    gateway: RunningGateway, visitor: Visitor
) -> None:
    for number, changes in enumerate(
        ({"first_event_us": 12_000_000}, {"attempts": 3}, {"usd_micro": 250_000}, {})
    ):
        row = settlement(number, gateway.token.id, **changes)
        gateway.daemon.runtime.recorder.record_settlement(row)
    await gateway.rows(4)
    for query, number in (("ttft=10s", 0), ("attempts=2", 1), ("usd=0.10", 2)):
        page = await visitor.get(f"{LOGS}?{query}")
        assert ids(page.html) == [request_id(number)]
    page = await visitor.get(LOGS)
    for text in ("12.0 s", "3 attempts", "$0.2500", "40 %"):
        assert text in page.text


async def test_filters(
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
        page = await visitor.get(f"{LOGS}?{query}")
        assert (query, ids(page.html)) == (query, [row.id for row in rows])
        if not rows:
            assert "No requests match." in page.text


async def test_the_form_keeps_its_texts(visitor: Visitor) -> None:
    page = await visitor.get(f'{LOGS}?text=a"<b>&state=error&since=24h')
    assert page.value("text") == 'a"<b>'
    assert page.value("since") == "24h"
    assert '<option value="error" selected>' in page.html
    assert is_harmless(page.html)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("since=soon", "Must be a date such as"),
        ("status=abc", "Must be a status such as 503 or a class such as 5xx."),
        ("state=sleeping", "Input should be"),
        ("key=nobody", "No key has this name."),
    ],
)
async def test_invalid_filters(visitor: Visitor, query: str, text: str) -> None:
    page = await visitor.get(f"{LOGS}?{query}")
    assert page.status == 400
    assert text in page.text
    assert 'aria-invalid="true"' in page.html
    assert ids(page.html) == []
    assert (await visitor.get(f"{LOGS}/tail?{query}")).status == 400


async def test_an_ambiguous_key_name(gateway: RunningGateway, visitor: Visitor) -> None:
    twins = [(await gateway.operations.create_key("twin", "default"))[0].id for _ in range(2)]
    page = await visitor.get(f"{LOGS}?key=twin")
    assert f"Several keys have this name: {', '.join(twins)}." in page.text


async def test_pagination(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream, 120)
    rows = [row.id for row in reversed(await gateway.rows(100))]
    pages: list[list[str]] = []
    path: str | None = f"{LOGS}?model={BETA}"
    while path:
        page = await visitor.get(path)
        pages.append(ids(page.html))
        path = link(page.html, "Older")
    assert [len(rows_of_page) for rows_of_page in pages] == [50, 50, 20]
    assert [id_ for rows_of_page in pages for id_ in rows_of_page][:100] == rows
    back = [pages.pop()]
    while path := link(page.html, "Newer"):
        page = await visitor.get(path)
        back.append(ids(page.html))
    assert back[1:3] == [pages[1], pages[0]]
    assert "data-tail" not in page.html  # not the newest page
    newest = link(page.html, "Newest")
    assert newest is not None
    assert ids((await visitor.get(newest)).html) == pages[0]


async def test_a_long_search_says_how_far_it_came(
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    visitor: Visitor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ask(gateway, upstream)
    row = await gateway.row()
    old = row.started_at - 30 * 60_000_000
    rare = row._replace(id=f"{first_id(old)}00000000ff", started_at=old, account="rare")
    gateway.daemon.runtime.recorder.record_settlement(rare)
    await gateway.rows(2)
    slow_down(monkeypatch)
    page, found, parts = await visitor.get(f"{LOGS}?account=rare"), list[str](), 0
    assert re.search(r"Searched back to \d{4}-\d\d-\d\d .* UTC", page.text)
    assert "No requests match" not in page.text
    while path := link(page.html, "Continue"):
        assert path == link(page.html, "Older")
        page, parts = await visitor.get(path), parts + 1
        found += ids(page.html)
        assert parts < 100
    assert found == [rare.id]
    page = await visitor.get(f"{LOGS}?account=none&after={rare.id}")
    assert "Searched up to" in page.text
    assert link(page.html, "Continue") == link(page.html, "Newer")


async def test_an_empty_page_follows_new_rows_alone(visitor: Visitor) -> None:
    page = await visitor.get(f"{LOGS}?account=none")
    newest = re.search(r'data-newest="(req_\w+)"', page.html)
    assert newest is not None
    assert abs(started_us(newest[1]) - time.time_ns() // 1000) < 60_000_000


async def test_upstream_errors_are_escaped(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await fail(gateway, upstream, HOSTILE_TEXT)
    await gateway.post(Format.CHAT, model="<b>\u202ename")
    await gateway.rows(2)
    for path in (LOGS, f"{LOGS}/tail"):
        page = await visitor.get(path)
        assert "<script>alert(1)</script>" in page.text
        assert "\\u202ename" in page.text
        assert is_harmless(page.html)


async def test_long_errors_are_truncated(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await fail(gateway, upstream, "x" * 1_000_000)
    row = await gateway.row()
    assert len((await visitor.get(LOGS)).html) < 40_000  # and all of it on its own page
    assert len((await visitor.get(f"{LOGS}/{row.id}")).html) < 40_000


async def test_tail(gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor) -> None:
    await ask(gateway, upstream)
    first = await gateway.row()
    page = await visitor.get(f"{LOGS}?model={BETA}")
    tail = re.search(r'data-tail="([^"]*)" data-feed="[^"]*" data-newest="([^"]*)"', page.html)
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
    assert "client left" in later.text


async def test_the_export_has_the_matching_rows(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await ask(gateway, upstream)
    await ask(gateway, upstream, model=ALPHA)
    _, alpha = await gateway.rows(2)
    page = await visitor.get(f"{LOGS}?model={ALPHA}&since=1h&key=tests")
    for text in ("Export CSV", "Export JSON lines"):
        address = link(page.html, text)
        assert address is not None
        exported = await visitor.get(address)
        assert exported.status == 200
        assert re.findall(r"req_[0-9a-f]{24}", exported.html) == [alpha.id]
