"""The page of usage: by key, model, group or channel, as a table and as CSV."""

from __future__ import annotations

import csv
import re
from html import unescape

import pytest

from gateway.console.pages import usage
from gateway.store.log.pages import first_id
from tests.console.hostile_text import is_harmless
from tests.console.visitor import Visitor
from tests.store.sample_rows import intent, settled
from tests.support.gateway import RunningGateway

PAGE = "/console/usage"


async def use(gateway: RunningGateway, *used: tuple[str, str, int]) -> None:
    """Requests that have ended: key, model, millionths of a dollar."""
    now = gateway.daemon.console.now()
    for number, (token_id, model, usd) in enumerate(used):
        row = intent(number, token_id, started_at=now, model=model, catalog_model=model)
        row = row._replace(id=f"{first_id(now)}{number:010x}")
        gateway.daemon.runtime.recorder.record_settlement(settled(row, usd_micro=usd))
    await gateway.rows(len(used))


def names(html: str) -> list[str]:
    table = html.partition('aria-label="Usage"')[2]
    return [unescape(name) for name in re.findall(r'<th scope="row"><a [^>]*>([^<]*)<', table)]


async def test_nothing_was_used(visitor: Visitor) -> None:
    page = await visitor.get(PAGE)
    assert page.status == 200
    assert "Nothing was used in this time." in page.text


async def test_by_key_model_group_and_channel(gateway: RunningGateway, visitor: Visitor) -> None:
    """The most expensive first; each name leads on, each number of requests to the log."""
    other, _ = await gateway.operations.create_key("<b>other", "default")
    key = gateway.token.id
    await use(gateway, (key, "m1", 100_000), (key, "m2", 400_000), (other.id, "m1", 2_000_000))
    for query, found in (
        ("", ["<b>other", "tests"]),
        ("?by=model", ["m1", "m2"]),
        ("?by=group&since=30d", ["default"]),
        (f"?by=model&key={key}", ["m2", "m1"]),
        ("?by=model&key=tests", ["m2", "m1"]),
        ("?by=key&model=m2", ["tests"]),
        ("?by=channel", ["main"]),
        ("?by=channel&model=m2&since=30d", ["main"]),
        ("?by=key&channel=main", ["<b>other", "tests"]),
        ("?by=model&channel=other", []),
        ("?by=nonsense", ["<b>other", "tests"]),
    ):
        page = await visitor.get(f"{PAGE}{query}")
        assert (query, names(page.html)) == (query, found)
        assert is_harmless(page.html)
    page = await visitor.get(f"{PAGE}?by=key&model=m1")
    assert "$2.10" in page.text  # the chart has the filter too
    assert re.findall(r'<meter [^>]* value="(\d+)"', page.html) == ["95", "4"]
    table = page.html.partition('aria-label="Usage"')[2]
    first = re.findall(r'href="([^"]*)"', table)[:2]
    further = await visitor.get(unescape(first[0]))
    assert names(further.html) == ["m1"]
    log = await visitor.get(unescape(first[1]))
    assert log.html.count("<tr data-id=") == 1


async def test_which_model_or_channel_is_slow(gateway: RunningGateway, visitor: Visitor) -> None:
    key = gateway.token.id
    await use(gateway, (key, "m1", 100_000), (key, "m2", 400_000))
    title = "Time to first token: 95th percentile"
    for query in ("?by=model", "?by=channel", "?by=model&channel=main"):
        chart = (await visitor.get(f"{PAGE}{query}")).html.partition(f'aria-label="{title}"')[2]
        assert "main: " in chart if "by=channel" in query else "m1: " in chart
    for query in ("?by=key", f"?by=model&key={key}"):
        assert title not in (await visitor.get(f"{PAGE}{query}")).html


@pytest.mark.parametrize("query", ["?key=nobody", "?key=nobody&by=model"])
async def test_invalid_filters(visitor: Visitor, query: str) -> None:
    page = await visitor.get(f"{PAGE}{query}")
    assert page.status == 400
    assert "No key has this name." in page.text
    assert (await visitor.get(f"{PAGE}.csv{query}")).status == 400


async def test_the_table_is_short_and_csv_has_all(
    gateway: RunningGateway, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MAX_ROWS", 2)
    formula, _ = await gateway.operations.create_key("sum", "default")
    await use(gateway, *((formula.id, f"=m{number}", number * 1000) for number in range(5)))
    page = await visitor.get(f"{PAGE}?by=model")
    assert names(page.html) == ["=m4", "=m3"]
    assert "the CSV has all" in page.text
    exported = await visitor.get(f"{PAGE}.csv?by=model")
    header, *rows = csv.reader(exported.html.splitlines())
    assert header[:3] == ["model", "name", "requests"]
    assert [row[0] for row in rows] == ["'=m4", "'=m3", "'=m2", "'=m1", "'=m0"]
    assert [float(row[-1]) for row in rows] == [0.004, 0.003, 0.002, 0.001, 0]
