"""The first page: its figures are the ledger's, its charts are images, its links lead to rows."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gateway.console.charts import CHARTS
from gateway.core.formats import Format
from tests.console.hostile_text import is_harmless
from tests.console.visitor import Visitor, signed_in_visitor
from tests.support.gateway import ALPHA, BETA, RunningGateway, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

PAGE = "/console"


def figure(html: str, name: str) -> str:
    found = re.search(rf"<span>{name}</span><strong>([^<]*)</strong>", html)
    assert found is not None
    return unescape(found[1])


async def test_nothing_has_happened(visitor: Visitor) -> None:
    shown = await visitor.get(PAGE)
    assert shown.status == 200
    assert "No request has ended in this time." in shown.text
    assert "No errors in this time." in shown.text
    assert figure(shown.html, "Requests") == "0"


async def test_figures_of_what_happened(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    for model in (BETA, BETA, ALPHA):
        await gateway.post(Format.CHAT, model=model)
    await gateway.post(Format.CHAT, model="<b>nobody</b>")
    rows = await gateway.rows(4)
    shown = await visitor.get(f"{PAGE}?range=7d")
    assert figure(shown.html, "Requests") == "4"
    assert figure(shown.html, "Failed") == "1"
    assert figure(shown.html, "Input tokens") == str(sum(row.input_tokens for row in rows))
    assert figure(shown.html, "Output tokens") == str(sum(row.output_tokens for row in rows))
    assert 'alt="Requests: 4, 1 of them failed."' in shown.html
    for words in ("tests", BETA, ALPHA, "no model", "model_not_found", rows[-1].id):
        assert words in shown.text
    assert is_harmless(shown.html)


async def test_what_is_counted_leads_to_its_rows(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT, model=ALPHA)
    await gateway.post(Format.CHAT, model="nobody-has-it")
    served, refused = await gateway.rows(2)
    shown = await visitor.get(PAGE)
    both = {served.id, refused.id}
    for words, ids in {"tests": both, ALPHA: {served.id}, "model_not_found": {refused.id}}.items():
        found = re.search(rf'<a href="([^"]*)"><span class="raw">{words}</span></a>', shown.html)
        assert found is not None
        rows = await visitor.get(unescape(found[1]))
        assert set(re.findall(r'data-id="(\w+)"', rows.html)) == ids


async def test_charts_are_images_with_a_policy_of_their_own(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT)
    await gateway.rows()
    shown = await visitor.get(PAGE)
    images = [unescape(each) for each in re.findall(r'<img src="([^"]*)"', shown.html)]
    assert images == [f"/console/charts/{name}.svg?range=24h" for name in CHARTS]
    for image in images:
        async with visitor.http.get(image) as answer:
            assert answer.status == 200
            assert answer.content_type == "image/svg+xml"
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert ElementTree.fromstring(await answer.read()).tag.endswith("svg")


@pytest.mark.parametrize(("asked", "slices"), [("24h", 25), ("7d", 8), ("30d", 31), ("<b>", 25)])
async def test_each_range_is_told_whole(visitor: Visitor, asked: str, slices: int) -> None:
    """Also in a table, for who cannot see a chart; what is no range is the shortest."""
    shown = await visitor.get(f"{PAGE}?range={asked}")
    table = shown.html.partition("Show as a table")[2].partition("</table>")[0]
    assert slices - 1 <= table.count('<th scope="row">') <= slices
    assert is_harmless(shown.html)


async def test_a_chart_needs_no_page_before_it(visitor: Visitor) -> None:
    assert (await visitor.get("/console/charts/units.svg?range=30d")).status == 200


async def test_a_chart_that_there_is_not(visitor: Visitor) -> None:
    assert (await visitor.get("/console/charts/nothing.svg")).status == 404


async def test_the_channels_health(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await visitor.post("/console/channels/chat-main/account-of-the-house/disable")
    shown = await visitor.get(PAGE)
    assert "chat-main chat 1 of 1 unhealthy" in shown.text
    assert "messages-main messages healthy" in shown.text


async def test_a_gateway_without_channels(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, []) as gateway, signed_in_visitor(gateway) as visitor:
        for path in (PAGE, "/console/channels"):
            shown = await visitor.get(path)
            assert "No channels are configured" in shown.text
