"""The request log over HTTP: filters, exports, the overview, timeouts."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from itertools import chain, repeat
from typing import Any

import aiohttp
import orjson
import pytest

from gateway.store.log import pages
from gateway.store.log.recorder import Recorder
from gateway.store.sqlite import database as sqlite_database
from tests.admin.api_client import call, error_of
from tests.store.sample_rows import START, intent, request_id, settlement
from tests.support.slow_search import slow_down


@pytest.fixture
async def recorded(admin, exchanges) -> AsyncIterator[Any]:
    recorder = Recorder(admin.database)
    await recorder.start()
    for intended, settled in exchanges:
        recorder.record_intent(intended)
        if settled is not None:
            recorder.record_settlement(*settled)
    await recorder.close()
    yield admin


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({"status": "5xx"}, [3]),
        ({"status": "503"}, [3]),
        ({"id": request_id(2)}, [2]),
        ({"group_name": "default", "channel": "main", "account": "a1"}, [4, 3, 2, 1]),
        ({"group_name": "other"}, []),
        ({"error_code": "x"}, []),
        ({"text": "ROOM"}, [3]),
        ({"since": "0", "until": str(2**50)}, [4, 3, 2, 1]),
        ({"since": str(2**50)}, []),
    ],
)
async def test_filters(client, recorded, query: dict[str, str], numbers: list[int]) -> None:
    status, content = await call(client, "GET", "requests", **query)
    assert status == 200
    assert [row["id"] for row in content["requests"]] == [request_id(each) for each in numbers]
    async with client.get("requests/export", params=query) as answer:
        assert (answer.status, answer.content_type) == (200, "application/jsonl")
        rows = [orjson.loads(line) for line in (await answer.read()).splitlines()]
    assert rows == content["requests"]


async def test_an_export_as_a_table(client, recorded) -> None:
    async with client.get("requests/export", params={"format": "csv"}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/csv")
        assert answer.headers["content-disposition"] == 'attachment; filename="requests.csv"'
        rows = list(csv.DictReader(io.StringIO(await answer.text())))
    assert [row["id"] for row in rows] == [request_id(each) for each in (4, 3, 2, 1)]
    assert rows[1]["upstream_error"] == r"no \x1b[31m room"


async def test_an_export_has_the_head_of_the_log(client, recorded) -> None:
    status, content = await call(client, "GET", "requests/head")
    (head,) = content["head"]
    async with client.get("requests/export") as answer:
        assert (status, answer.headers["x-gateway-log-head"]) == (200, head)
    status, report = await call(client, "GET", "check", head=head)
    assert (status, report["head"]) == (200, [head])
    status, report = await call(client, "GET", "check", head=f"{head},{'0' * 64}")
    assert ("links.digest", "0" * 64) in [
        (each["column"], each["link"]) for each in report["discrepancies"]
    ]


async def test_an_empty_export_has_a_header(client) -> None:
    async with client.get("requests/export", params={"format": "csv"}) as answer:
        assert (await answer.text()).startswith("id,started_at,token_id,")
    async with client.get("requests/export") as answer:
        assert await answer.read() == b""


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("requests?status=6xx", "status: must be a status such as 503 or a class such as 5xx"),
        ("requests?status=50", "status: must be a status such as 503 or a class such as 5xx"),
        ("requests?since=yesterday", "since: Input should be"),
        ("requests/export?format=xls", "format: Input should be"),
        ("requests/export?limit=5", "limit: Extra"),
        ("overview", "since: Field required"),
        ("overview?since=-1", "since: Input should be"),
    ],
)
async def test_refusals(client, path: str, message: str) -> None:
    status, code, text = error_of(await call(client, "GET", path))
    assert (status, code) == (400, "invalid_request")
    assert text.startswith(message)


async def test_the_overview(client, recorded) -> None:
    recorded.clock.now = 3 * 3_600_000_000
    status, seen = await call(client, "GET", "overview", since=0)
    assert (status, seen["until"], len(seen["series"])) == (200, 3 * 3_600_000_000, 3)
    started = intent(1).started_at
    status, seen = await call(client, "GET", "overview", since=started, until=started + 1)
    assert seen["whole"]["requests"] == 3
    assert [part["name"] for part in seen["keys"]] == ["tok_a", "tok_b"]
    assert seen["series"][0]["at"] == seen["since"]


async def test_a_query_timeout_is_reported(client, recorded, monkeypatch) -> None:
    """Also an export, whose answer has not begun then."""
    monkeypatch.setattr(sqlite_database, "_CLOCK_INTERVAL", 1)
    whole = pages.timed_reader
    monkeypatch.setattr(pages, "timed_reader", lambda database, _=None: whole(database, -1.0))
    for path in ("requests", "requests/export"):
        status, code, message = error_of(await call(client, "GET", path))
        assert (status, code) == (400, "too_much_to_read")
        assert "narrow the time" in message


async def test_a_search_that_takes_its_time_goes_on(client, admin, monkeypatch) -> None:
    """From the id that the response names; an export goes on by itself."""
    recorder = Recorder(admin.database)
    await recorder.start()
    for minute, account in ((0, "rare"), (30, "a1")):
        at = START + minute * 60_000_000
        id_ = f"{pages.first_id(at)}00000000ff"
        recorder.record_settlement(settlement(minute, id=id_, started_at=at, account=account))
    await recorder.close()
    _, content = await call(client, "GET", "requests", account="rare")
    whole = content["requests"]
    assert (len(whole), content["searched_to"]) == (1, None)
    slow_down(monkeypatch)
    found, query, calls = [], {"account": "rare"}, 0
    while content := (await call(client, "GET", "requests", **query))[1]:
        found += content["requests"]
        calls += 1
        if content["searched_to"] is None:
            break
        assert pages.started_us(content["searched_to"]) > 0
        query["before"] = content["searched_to"]
    assert found == whole
    assert calls > 2
    async with client.get("requests/export", params={"account": "rare"}) as answer:
        assert [orjson.loads(line) for line in (await answer.read()).splitlines()] == whole


async def test_a_failing_export_is_cut(client, admin, monkeypatch) -> None:
    recorder = Recorder(admin.database)
    await recorder.start()
    for number in range(1200):
        recorder.record_settlement(settlement(number))
    await recorder.close()
    patience = chain([10.0], repeat(-1.0))
    monkeypatch.setattr(sqlite_database, "_CLOCK_INTERVAL", 1)
    whole = pages.timed_reader
    monkeypatch.setattr(
        pages, "timed_reader", lambda database, _=None: whole(database, next(patience))
    )
    with pytest.raises(aiohttp.ClientError):
        async with client.get("requests/export") as answer:
            assert answer.status == 200
            await answer.read()
