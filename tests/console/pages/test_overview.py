"""The overview: metrics of the request log, charts, and links to the matching requests."""

from __future__ import annotations

import asyncio
import json
import re
from html import unescape
from pathlib import Path

import pytest
import yaml

from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.store.log.pages import first_id
from gateway.store.log.usage import Dimension, usage
from tests.console.hostile_text import is_harmless
from tests.console.visitor import Visitor, signed_in_visitor
from tests.store.sample_rows import intent, settled
from tests.support.gateway import (
    ALPHA,
    BETA,
    RunningGateway,
    channel,
    channels,
    gateway_config,
    run_gateway,
)
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

PAGE = "/console"


def figure(html: str, name: str) -> str:
    match = re.search(rf"<span>{name}</span>\s*<strong>([^<]*)</strong>", html)
    assert match is not None
    return unescape(match[1])


async def test_without_requests(visitor: Visitor) -> None:
    page = await visitor.get(PAGE)
    assert page.status == 200
    assert "No request has ended in this time." in page.text
    assert "No errors in this time." in page.text
    assert figure(page.html, "Requests") == "0"


async def test_with_a_slash_at_the_end(visitor: Visitor) -> None:
    for query in ("", "?since=7d"):
        async with visitor.http.get(f"{PAGE}/{query}", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["location"]) == (303, f"{PAGE}{query}")
        assert (await visitor.get(f"{PAGE}/{query}")).status == 200


async def test_metrics(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    for model in (BETA, BETA, ALPHA):
        await gateway.post(Format.CHAT, model=model)
    await gateway.post(Format.CHAT, model="<b>nobody</b>")
    rows = await gateway.rows(4)
    page = await visitor.get(f"{PAGE}?since=7d")
    assert figure(page.html, "Requests") == "4"
    assert figure(page.html, "Success") == "75.0 %"
    assert "1 without success" in page.text
    assert figure(page.html, "Input tokens") == str(sum(row.input_tokens for row in rows))
    assert figure(page.html, "Output tokens") == str(sum(row.output_tokens for row in rows))
    assert 'aria-label="Requests: 4, 1 without success"' in page.html
    for text in ("tests", BETA, ALPHA, "no model", "model_not_found", rows[-1].id):
        assert text in page.text
    assert is_harmless(page.html)


async def test_links_to_matching_requests(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT, model=ALPHA)
    await gateway.post(Format.CHAT, model="nobody-has-it")
    served, refused = await gateway.rows(2)
    page = await visitor.get(PAGE)
    both = {served.id, refused.id}
    for text, ids in {"tests": both, ALPHA: {served.id}, "model_not_found": {refused.id}}.items():
        match = re.search(rf'<a href="([^"]*)"><span class="raw">{text}</span></a>', page.html)
        assert match is not None
        rows = await visitor.get(unescape(match[1]))
        assert set(re.findall(r'data-id="(\w+)"', rows.html)) == ids


async def test_every_tile_leads_to_its_requests(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT)
    await gateway.rows()
    page = await visitor.get(f"{PAGE}?since=1h")
    tiles = re.findall(r'<a class="figure" href="([^"]*)"><span>([^<]*)</span>', page.html)
    assert [title for _, title in tiles][:3] == ["Cost", "This month", "Success"]
    for path, title in tiles:
        if path.startswith("#"):
            assert f'id="{path[1:]}"' in page.html, title
        else:
            assert (await visitor.get(unescape(path))).status == 200, title


async def test_the_cost_of_this_month(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    """As limits know it, and with its end at the same pace."""
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT)
    await gateway.rows()
    page = await visitor.get(PAGE)
    assert figure(page.html, "This month") == figure(page.html, "Cost") != "0 units"
    pace = re.search(r"This month ([\d\u202f]+) units ([\d\u202f]+) units at this pace", page.text)
    assert pace is not None
    spent, forecast = (int(each.replace("\u202f", "")) for each in pace.groups())
    assert forecast >= spent


async def test_the_cost_of_the_time_before(gateway: RunningGateway, visitor: Visitor) -> None:
    now = gateway.daemon.console.now()
    recorder = gateway.daemon.runtime.recorder
    for number, (hours, usd) in enumerate(((0, 2_000_000), (30, 1_000_000))):
        at = now - hours * 3_600_000_000
        row = intent(number, gateway.token.id, started_at=at)
        row = row._replace(id=f"{first_id(at)}{number:010x}")
        recorder.record_settlement(settled(row, usd_micro=usd))
    await gateway.rows(2)
    page = await visitor.get(PAGE)
    assert figure(page.html, "Cost") == "$2.00"
    assert "$1.00 before" in page.text


async def test_outcomes_have_their_colours(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT), json_response(b"no", 500))
    await gateway.post(Format.CHAT)
    await gateway.post(Format.CHAT)
    await gateway.post(Format.CHAT, model="nobody-has-it")
    await gateway.rows(3)
    page = await visitor.get(PAGE)
    chart = page.html.partition('aria-label="Requests: 3, 2 without success"')[2]
    drawn = re.findall(r'<path class="bars outcome-(\w+)"', chart.partition("</svg>")[0])
    assert drawn == ["success", "upstream_error", "permission"]
    assert "success: 1\nupstream error: 1\npermission: 1</title>" in chart


async def test_the_cost_by_key(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    await gateway.post(Format.CHAT)
    await gateway.rows()
    for query, name in (("", BETA), ("?by=model", BETA), ("?by=key&since=7d", "tests")):
        page = await visitor.get(f"{PAGE}{query}")
        legend = page.html.partition("</svg>")[2].partition("</ul>")[0]
        assert re.findall(r'<a class="raw" href="[^"]*">([^<]*)</a>', legend) == [name]


@pytest.mark.parametrize(
    ("range_name", "buckets"), [("24h", 24), ("7d", 7), ("30d", 30), ("<b>", 24)]
)
async def test_the_table_has_every_bucket(visitor: Visitor, range_name: str, buckets: int) -> None:
    """As many as its name says, the current one included. An unknown range is the default one."""
    page = await visitor.get(f"{PAGE}?since={range_name}")
    table = page.html.partition("Show as a table")[2].partition("</table>")[0]
    assert table.count('<th scope="row">') == buckets
    assert is_harmless(page.html)


async def test_health_of_channels(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    await visitor.post("/console/channels/chat-main/account-for-tests/disable")
    page = await visitor.get(PAGE)
    assert "chat-main chat 1 of 1 unhealthy" in page.text
    assert "messages-main messages healthy" in page.text


async def test_a_gateway_without_channels(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, []) as gateway, signed_in_visitor(gateway) as visitor:
        for path in (PAGE, "/console/channels"):
            page = await visitor.get(path)
            assert "No channels are configured" in page.text
        pasted = (await visitor.get(PAGE)).inside("first-channel")
        assert pasted is not None
        (first,) = yaml.safe_load(pasted)["channels"]
        parse_config(json.dumps(gateway_config(tmp_path, [first])))


async def test_an_invalid_file_is_announced(gateway: RunningGateway, visitor: Visitor) -> None:
    page = await visitor.get("/console")
    assert "configuration file is invalid" not in page.text
    gateway.daemon.runtime.config_error = "channels.yaml:12: <b> 3 errors"
    page = await visitor.get("/console")
    assert "stays in force: channels.yaml:12: <b> 3 errors." in page.text
    assert is_harmless(page.html)


async def test_a_channel_that_never_succeeded_is_not_called_healthy(
    gateway: RunningGateway, upstream: ScriptedUpstream, visitor: Visitor
) -> None:
    upstream.respond_with(json_response({"error": {"message": "broken"}}, 500))
    await gateway.post(Format.CHAT, key=await gateway.key_for_models("beta-*"))
    for path in ("/console", "/console/channels"):
        assert re.search(r"0 of \d succeeded", (await visitor.get(path)).text), path


async def test_the_price_is_apart_from_the_estimates(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(
        json_response(
            b'{"choices":[{"index":0,"message":{"role":"assistant",'
            b'"content":"Hello"},"finish_reason":"stop"}]}'
        )
    )
    money = {"unit_price": 1}
    async with run_gateway(tmp_path, channels(upstream.address), money=money) as gateway:
        await gateway.post(Format.CHAT)
        await gateway.rows()
        async with signed_in_visitor(gateway) as visitor:
            page = await visitor.get("/console")
    assert re.search(r"Cost \$[\d.]+ \$[\d.]+ before, [\d.]+ units, 1 request estimated", page.text)


async def test_dollars_come_first_and_rank(gateway: RunningGateway, visitor: Visitor) -> None:
    """Tables were ranked by units. Models without a price in dollars come last."""
    costs = {"many-units": (9_000_000, 10_000), "dollars": (5, 990_000), "unpriced": (8_000_000, 0)}
    now = gateway.daemon.console.now()
    recorder = gateway.daemon.runtime.recorder
    for number, (model, (units, usd)) in enumerate(costs.items()):
        row = intent(number, gateway.token.id, started_at=now, model=model, catalog_model=model)
        row = row._replace(id=f"{first_id(now)}{number:010x}")
        recorder.record_settlement(settled(row, cost_micro=units, usd_micro=usd))
    await gateway.rows(len(costs))
    page = await visitor.get(PAGE)
    assert figure(page.html, "Cost") == "$1.00"
    table = page.html.partition('aria-label="Models"')[2].partition("</table>")[0]
    assert re.findall(r'<span class="raw">([^<]*)', table) == ["dollars", "many-units", "unpriced"]
    assert re.findall(r'<meter [^>]* value="(\d+)"', table) == ["99", "1", "0"]
    assert "8 units" in table
    assert re.findall(r"<figcaption>([^<]*?) *<", page.html)[0] == "US dollars"
    logs = await visitor.get("/console/logs?model=dollars")
    assert ">$0.9900</a>" in logs.html
    request = await visitor.get("/console/logs/" + re.findall(r'data-id="(\w+)"', logs.html)[0])
    assert figure(request.html, "Cost") == "$0.99"
    used = await usage(gateway.operations.database, (Dimension.MODEL,), since=0)
    assert [row.model for row in used] == ["dollars", "many-units", "unpriced"]


async def test_alerts_that_fire_are_listed(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({}, 401))
    alerts = {"check_every": 0.05}
    async with (
        run_gateway(tmp_path, channels(upstream.address), alerts=alerts) as gateway,
        signed_in_visitor(gateway) as visitor,
    ):
        assert "account_auth_failed" not in (await visitor.get(PAGE)).text
        await gateway.post(Format.MESSAGES)
        async with asyncio.timeout(5):
            while not gateway.daemon.console.alerts.firing():
                await asyncio.sleep(0.02)
        page = await visitor.get(PAGE)
        assert "critical account_auth_failed Account messages-main/account-for-tests" in page.text
        logs = await visitor.get("/console/logs")
        assert re.search(
            r"Account messages-main/\S+ gets no requests: .* since \d s Show", logs.text
        )
        assert "held back" not in page.text
        assert is_harmless(page.html)


async def test_alerts_that_are_held_back_are_counted(
    tmp_path: Path, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.alerts.incidents.MAX_INCIDENTS", 1)
    upstream.respond_with(json_response({}, 401))
    accounts = [{"name": f"a{number}", "key": f"sk-{number}"} for number in range(3)]
    main = channel(Format.MESSAGES, upstream.address, accounts=accounts)
    alerts = {"check_every": 0.05}
    async with (
        run_gateway(tmp_path, [main], alerts=alerts) as gateway,
        signed_in_visitor(gateway) as visitor,
    ):
        async with asyncio.timeout(5):
            while gateway.daemon.console.alerts.held_back() != {"account_auth_failed": 2}:
                await gateway.post(Format.MESSAGES)
                await asyncio.sleep(0.05)
        page = await visitor.get(PAGE)
        assert "2 more of account_auth_failed, held back until others are over." in page.text
        assert is_harmless(page.html)
