"""Stored responses in the admin API: lists, chains, texts, deletion."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from gateway.store.records import StoredResponse
from tests.admin.api_client import call, error_of
from tests.admin.conftest import AdminFixture
from tests.store.sample_responses import stored_response, write_responses

LAST = 5


@pytest.fixture
async def replies(admin: AdminFixture) -> list[StoredResponse]:
    """A chain with a branch of one key, and one reply of another."""
    root = stored_response(1)
    middle = stored_response(2, previous=root)
    replies = [
        *(root, middle, stored_response(3, previous=middle), stored_response(4, previous=root)),
        stored_response(LAST, "tok_b"),
    ]
    await write_responses(admin.database, *replies)
    return replies


async def ids(client: ClientSession, **query: object) -> list[str]:
    status, body = await call(client, "GET", "responses", **query)
    assert status == 200
    return [each["id"] for each in body["responses"]]


async def test_lists(client: ClientSession, replies: list[StoredResponse]) -> None:
    newest_first = [reply.id for reply in reversed(replies)]
    assert await ids(client) == newest_first
    assert await ids(client, token_id="tok_b") == newest_first[:1]
    assert await ids(client, limit=2) == newest_first[:2]
    assert await ids(client, limit=2, before=newest_first[1]) == newest_first[2:4]
    _, body = await call(client, "GET", "responses", limit=1)
    (listed,) = body["responses"]
    assert set(listed) == set(StoredResponse._fields) - {"request", "reply", "events"}


async def test_one_response_with_its_chain(
    client: ClientSession, replies: list[StoredResponse]
) -> None:
    status, shown = await call(client, "GET", f"responses/{replies[2].id}")
    assert status == 200
    assert shown["previous_id"] == replies[1].id
    assert [each["id"] for each in shown["chain"]] == [reply.id for reply in replies[:4]]
    assert "request" not in shown
    _, shown = await call(client, "GET", f"responses/{replies[2].id}", texts="true")
    assert (shown["request"], shown["reply"]) == ('{"input":"3"}', '{"output":[]}')


async def test_deletion(client: ClientSession, replies: list[StoredResponse]) -> None:
    assert (await call(client, "DELETE", f"responses/{replies[1].id}"))[0] == 204
    _, shown = await call(client, "GET", f"responses/{replies[1].id}")
    assert shown["deleted"] is True
    again = await call(client, "DELETE", f"responses/{replies[1].id}")
    assert error_of(again)[:2] == (404, "response_not_found")
    assert (await call(client, "DELETE", f"responses/{replies[2].id}"))[0] == 204
    assert await ids(client, token_id="tok_a") == [replies[3].id, replies[0].id]


@pytest.mark.parametrize("id", ["resp_unknown", "%00", "resp_", "x" * 500])
async def test_unknown_responses(
    client: ClientSession, replies: list[StoredResponse], id: str
) -> None:
    for method in ("GET", "DELETE"):
        answer = await call(client, method, f"responses/{id}")
        assert error_of(answer)[:2] == (404, "response_not_found")
