"""Recent usage has every day, the first and today included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.console.usage_view import DAYS, daily_chart, daily_usage, usage_by_model
from gateway.core.formats import Format
from tests.support.gateway import ALPHA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply


async def test_usage_of_the_last_days(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("messages"))
    await gateway.post(Format.MESSAGES)
    row = await gateway.row()
    now = gateway.daemon.console.now()

    days = await daily_usage(gateway.operations, now, gateway.token.id)
    today = datetime.fromtimestamp(row.started_at // 1_000_000, UTC).date()
    assert [day.date for day in days][-1] == today.isoformat()
    assert days[0].date == (today - timedelta(days=DAYS - 1)).isoformat()
    assert len({day.date for day in days}) == DAYS
    assert (days[-1].requests, days[-1].cost_micro) == (1, row.cost_micro)
    assert not any(day.requests for day in days[:-1])
    (model,) = await usage_by_model(gateway.operations, now, gateway.token.id)
    assert (model.model, model.cost_micro) == (ALPHA, row.cost_micro)

    later = now + DAYS * 86_400_000_000
    assert not any(
        day.requests for day in await daily_usage(gateway.operations, later, gateway.token.id)
    )
    assert not await usage_by_model(gateway.operations, later, gateway.token.id)
    chart = daily_chart(days, "tok_1")
    assert chart.curves[0].path.count("M") == 1
    assert chart.columns[-1].url.startswith(f"/console/logs?key=tok_1&since={days[-1].date}&until=")
