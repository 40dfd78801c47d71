"""The admin API: shapes, statuses, every error."""

from __future__ import annotations

import io
from typing import Any

import orjson
import pytest

from gateway.store.keys import digest, well_formed
from gateway.store.log.recorder import Recorder
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.admin.api_client import call, error_of
from tests.store.sample_rows import failed_attempt
from tests.support.databases import raw_connection

TOKEN_FIELDS = {
    "id",
    "refused",
    "name",
    "display",
    "group",
    "state",
    "created_at",
    "revoked_at",
    "requests",
    "input_tokens",
    "output_tokens",
    "cost_micro",
    "last_used_at",
    "note",
    "expires_at",
    "probe",
    "models",
    "addresses",
    "user_agents",
    "limits",
    "old_display",
    "old_expires_at",
    "first_used_at",
    "first_address",
    "first_agent",
    "changed_at",
    "changed",
    "usd_micro",
    "let_run",
    "trust",
    "cost_in_usage",
    "budget_day_per_user",
    "budget_usd_day_per_user",
    "budget_day_per_session",
    "budget_usd_day_per_session",
}
GROUP_FIELDS = {
    "name",
    "patterns",
    "created_at",
    "multiplier",
    "limits",
    "user_agents",
    "user_agent_mode",
    "store_replies",
    "on_shared_loss",
}


async def test_key_lifecycle(client, admin) -> None:
    status, created = await call(client, "POST", "keys", {"name": "Ünïcode 名前"})
    assert status == 201
    assert set(created) == TOKEN_FIELDS | {"key"}
    key = created.pop("key")
    assert well_formed(key)
    assert (created["name"], created["group"], created["state"]) == (
        "Ünïcode 名前",
        "default",
        "active",
    )
    assert await call(client, "GET", "keys") == (200, {"keys": [created]})
    assert await call(client, "GET", f"keys/{created['id']}") == (200, created)
    status, revoked = await call(client, "DELETE", f"keys/{created['id']}")
    assert (status, revoked["state"]) == (200, "revoked")
    assert await call(client, "DELETE", f"keys/{created['id']}") == (200, revoked)
    assert admin.registry.find(digest(key)) is None


async def test_what_an_ended_key_runs(client) -> None:
    _, created = await call(client, "POST", "keys", {"name": "alice"})
    path = f"keys/{created['id']}"
    for body, let_run in (
        ({"state": "disabled", "let_run": True}, True),
        ({"state": "disabled"}, False),
        ({"state": "disabled", "let_run": True}, True),
        ({"note": "x"}, True),
        ({"state": "active"}, False),
    ):
        assert (await call(client, "PATCH", path, body))[1]["let_run"] is let_run
    for query, let_run in (("?let_run=true", True), ("?let_run=true", True), ("", False)):
        status, revoked = await call(client, "DELETE", path + query)
        assert (status, revoked["let_run"]) == (200, let_run)
    status, revoked = await call(client, "DELETE", f"{path}?let_run=true")
    assert (status, revoked["let_run"]) == (200, False)
    assert (await call(client, "DELETE", f"{path}?let_run=maybe"))[0] == 400


async def test_group_lifecycle(client) -> None:
    status, added = await call(client, "POST", "groups", {"name": "team", "patterns": ["beta-*"]})
    assert status == 201
    assert set(added) == GROUP_FIELDS
    assert await call(client, "GET", "groups/team") == (200, added)
    status, changed = await call(
        client, "PATCH", "groups/team", {"patterns": ["family:alpha", "beta-5.4"]}
    )
    assert (status, changed) == (200, added | {"patterns": ["family:alpha", "beta-5.4"]})
    status, listed = await call(client, "GET", "groups")
    assert [group["name"] for group in listed["groups"]] == ["default", "team"]
    assert await call(client, "DELETE", "groups/team") == (204, None)
    assert error_of(await call(client, "GET", "groups/team"))[:2] == (404, "group_not_found")


async def test_request_pages_and_filters(client, admin, exchanges) -> None:
    recorder = Recorder(admin.database)
    await recorder.start()
    for intent, settlement in exchanges:
        recorder.record_intent(intent)
        if settlement is not None:
            recorder.record_settlement(*settlement)
    await recorder.close()
    ids = [intent.id for intent, _ in exchanges]

    async def ids_of(**query: Any) -> list[str]:
        status, content = await call(client, "GET", "requests", **query)
        assert status == 200
        return [row["id"] for row in content["requests"]]

    assert await ids_of() == ids[::-1]
    assert await ids_of(limit=2) == ids[:-3:-1]
    assert await ids_of(before=ids[1]) == ids[:1]
    assert await ids_of(after=ids[0], limit=2) == [ids[2], ids[1]]
    assert await ids_of(token_id="tok_b") == [ids[1]]
    assert await ids_of(model="alpha-sonnet-4-6", state="ok") == [ids[0]]
    assert await ids_of(state="running") == [ids[3]]
    assert await ids_of(status=503) == [ids[2]]
    status, row = await call(client, "GET", f"requests/{ids[2]}")
    assert (status, row["upstream_error"], row["stream"]) == (200, "no \x1b[31m room", False)
    assert row["attempts"] == 2
    status, content = await call(client, "GET", f"requests/{ids[2]}/attempts")
    assert (status, [each["verdict"] for each in content["attempts"]]) == (
        200,
        ["rate limited"] * 2,
    )
    assert content["attempts"][0] == failed_attempt()._asdict()
    assert await call(client, "GET", f"requests/{ids[3]}/attempts") == (200, {"attempts": []})


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "keys", {}, (400, "invalid_request", "name: Field required")),
        ("POST", "keys", {"name": ""}, (400, "invalid_request", "name: String should have")),
        ("POST", "keys", {"name": " a"}, (400, "invalid_request", "name: must not begin")),
        ("POST", "keys", {"name": "a\x1b[1m"}, (400, "invalid_request", "name: must not have")),
        ("POST", "keys", {"name": 5}, (400, "invalid_request", "name: Input should be")),
        ("POST", "keys", {"name": "a", "key": "sk-1"}, (400, "invalid_request", "key: Extra")),
        ("POST", "keys", [], (400, "invalid_request", "The body must be a JSON object.")),
        ("POST", "keys", {"name": "a", "group": "x"}, (404, "group_not_found", "There is no")),
        ("GET", "keys/tok_x", None, (404, "key_not_found", "No key has the id tok_x.")),
        ("DELETE", "keys/tok_x", None, (404, "key_not_found", "No key has the id tok_x.")),
        ("PATCH", "groups/x", {"patterns": ["*"]}, (404, "group_not_found", "There is no")),
        ("PATCH", "groups/default", {"patterns": []}, (400, "invalid_request", "patterns: List")),
        (
            "PATCH",
            "groups/default",
            {"patterns": ["family:gamma", "a,b", "ok"]},
            (400, "invalid_request", "patterns.0: must be family:alpha"),
        ),
        (
            "POST",
            "groups",
            {"name": "../x", "patterns": ["*"]},
            (400, "invalid_request", "name: may have letters"),
        ),
        (
            "POST",
            "groups",
            {"name": "default", "patterns": ["*"]},
            (409, "group_exists", "Group default already exists."),
        ),
        ("GET", "requests?limit=0", None, (400, "invalid_request", "limit: Input should be")),
        ("GET", "requests?state=gone", None, (400, "invalid_request", "state: Input should be")),
        ("GET", "requests?colour=red", None, (400, "invalid_request", "colour: Extra")),
        ("GET", "requests/req_x", None, (404, "request_not_found", "The request log has no")),
        (
            "GET",
            "requests/req_x/attempts",
            None,
            (404, "request_not_found", "The request log has no"),
        ),
        ("GET", "usage?by=colour", None, (400, "invalid_request", "by.0: Input should be 'key'")),
        ("GET", "usage?since=-1", None, (400, "invalid_request", "since: Input should be")),
        ("GET", "nothing", None, (404, "not_found", "Not Found")),
        ("PATCH", "keys", None, (405, "method_not_allowed", "Method Not Allowed")),
    ],
)
async def test_refusals(client, method: str, path: str, body: Any, expected: Any) -> None:
    status, code, message = error_of(await call(client, method, path, body))
    assert (status, code) == expected[:2]
    assert message.startswith(expected[2])


async def test_all_errors_are_reported_together(client) -> None:
    answer = await call(client, "POST", "groups", {"name": "a b", "patterns": ["a,b", "x\n"]})
    message = error_of(answer)[2]
    assert [part.split(":")[0] for part in message.split("; ")] == [
        "name",
        "patterns.0",
        "patterns.1",
    ]


async def test_invalid_and_too_large_bodies(client) -> None:
    async with client.post("keys", data=b"{") as answer:
        assert answer.status == 400
    async with client.post("keys", data=io.BytesIO(b" " * (2 << 20))) as answer:
        assert answer.status == 413
        assert orjson.loads(await answer.read())["error"]["code"] == "request_entity_too_large"


async def test_an_internal_error_shows_no_details(client, admin, state_dir, caplog) -> None:
    await admin.operations.create_key("alice", "default")
    with raw_connection(state_dir / DATABASE_NAME) as damage:
        damage.execute("DROP TABLE tokens")
    status, code, message = error_of(await call(client, "GET", "keys"))
    assert (status, code) == (500, "internal_error")
    assert "tokens" not in message
    assert "GET /admin/api/keys failed" in caplog.text
