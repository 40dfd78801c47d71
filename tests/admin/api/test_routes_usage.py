"""Usage and the integrity check over HTTP."""

from __future__ import annotations

import pytest

from gateway.store.log.pages import first_id
from gateway.store.log.recorder import Recorder
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.admin.api_client import call, error_of
from tests.store.sample_rows import START, intent, settled, settlement
from tests.support.databases import raw_connection

HOUR = 3_600_000_000


@pytest.fixture
async def token_id(admin) -> str:
    """A key with three exchanges: two now, for two models, and one an hour later that failed."""
    token, _ = await admin.operations.create_key("alice", "default")
    recorder = Recorder(admin.database)
    await recorder.start()
    for number, model, at in ((1, "beta-5.4", 0), (2, "alpha-x", 0), (3, "alpha-x", HOUR)):
        opened = intent(number, token.id, catalog_model=model, started_at=START + at)
        recorder.record_intent(opened)
        recorder.record_settlement(settled(opened, cost_micro=10**number))
    await recorder.close()
    return token.id


async def test_sums_by_dimension(client, token_id: str) -> None:
    async def costs(**query: object) -> list[tuple[object, ...]]:
        status, answer = await call(client, "GET", "usage", **query)
        assert status == 200
        by = str(query.get("by", "key")).split(",")
        return [(*(row[each] for each in by), row["cost_micro"]) for row in answer["usage"]]

    assert await costs() == [(token_id, 1110)]
    assert await costs(by="model") == [("alpha-x", 1100), ("beta-5.4", 10)]
    assert await costs(by="model,group", key=token_id, model="beta-5.4") == [
        ("beta-5.4", "default", 10)
    ]
    assert await costs(by="hour", group="default") == [
        (START // HOUR, 110),
        (START // HOUR + 1, 1000),
    ]
    assert await costs(key="tok_x") == []


async def test_an_hour_belongs_to_exactly_one_span(client, token_id: str) -> None:
    async def cost(**query: int) -> int:
        _, answer = await call(client, "GET", "usage", by="group", **query)
        return sum(row["cost_micro"] for row in answer["usage"])

    second = (START // HOUR + 1) * HOUR
    assert await cost(since=second) == 1000
    assert await cost(since=second - 1) == 1110
    assert await cost(until=second) == 110
    for meeting in (second - 1, second, second + 1, second + HOUR - 1):
        assert await cost(until=meeting) + await cost(since=meeting) == 1110


async def test_traffic_by_channel_in_steps(client, token_id: str) -> None:
    span = {"since": START, "until": START + 2 * HOUR}
    status, answer = await call(client, "GET", "traffic", **span, by="channel", step="hour")
    assert status == 200
    assert answer["complete_since"] is None
    assert [(row["start"], row["name"], row["requests"]) for row in answer["traffic"]] == [
        (START // HOUR * HOUR, "main", 2),
        (START // HOUR * HOUR + HOUR, "main", 1),
    ]
    (whole,) = (await call(client, "GET", "traffic", **span, model="alpha-x"))[1]["traffic"]
    assert (whole["start"], whole["requests"], whole["cost_micro"]) == (None, 2, 1100)
    assert whole["first_event_ms"]["p50"] is not None
    assert await call(client, "GET", "traffic", since=0, until=1) == (
        200,
        {"traffic": [], "complete_since": None},
    )
    _, usage = await call(client, "GET", "usage", by="channel", channel="main")
    assert [(row["channel"], row["requests"]) for row in usage["usage"]] == [("main", 3)]


@pytest.mark.parametrize(
    ("query", "field"),
    [({}, "since"), ({"since": 0, "step": "5m"}, "step"), ({"since": 0, "by": "key"}, "by")],
)
async def test_traffic_that_cannot_be_reported(
    client, query: dict[str, object], field: str
) -> None:
    status, code, message = error_of(await call(client, "GET", "traffic", **query))
    assert (status, code) == (400, "invalid_request")
    assert message.startswith(f"{field}: ")


async def test_refusals(client, admin, token_id: str) -> None:
    span = {"since": START, "until": START + HOUR}
    refused = [("rate_limit_exceeded", 3), ("rate_limit_exceeded", 1), ("permission_denied", 1)]
    recorder = Recorder(admin.database)
    await recorder.start()
    for number, (code, requests) in enumerate(refused, 100):
        row = settlement(number, token_id, state="rejected", error_code=code, requests=requests)
        recorder.record_settlement(row._replace(id=f"{first_id(START)}{number:010}"))
    await recorder.close()
    _, answer = await call(client, "GET", "refusals", **span, key=token_id)
    found = [(row["token_id"], row["reason"], row["requests"]) for row in answer["refusals"]]
    assert found == [(token_id, "rate_limit_exceeded", 4), (token_id, "permission_denied", 1)]
    assert answer["refusals"][0]["last"].endswith("101")
    for nothing in ({"key": "tok_other"}, {"since": 0, "until": START}):
        _, answer = await call(client, "GET", "refusals", **span | nothing)
        assert answer["refusals"] == []


@pytest.mark.parametrize("name", ["since", "until"])
async def test_a_time_out_of_range_is_refused(client, name: str) -> None:
    status, code, message = error_of(await call(client, "GET", "usage", **{name: 10**30}))
    assert (status, code) == (400, "invalid_request")
    assert message.startswith(f"{name}: ")


async def test_consistent_and_inconsistent_totals(client, state_dir, token_id: str) -> None:
    status, report = await call(client, "GET", "check")
    assert (status, report["clean"], report["discrepancies"]) == (200, True, [])
    assert (report["keys"], report["rows"], report["hours"], report["open"]) == (1, 3, 3, 0)
    with raw_connection(state_dir / DATABASE_NAME) as damage:
        damage.execute("UPDATE tokens SET cost_micro = cost_micro + 1")
    status, report = await call(client, "GET", "check")
    assert (status, report["clean"]) == (200, False)
    (discrepancy,) = report["discrepancies"]
    assert (discrepancy["column"], discrepancy["token_id"]) == ("tokens.cost_micro", token_id)
    assert (discrepancy["stands"], discrepancy["counted"]) == (1111, 1110)
