"""Keys over HTTP with all settings: create, update, rotate, import."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.limits import LIMIT_NAMES
from gateway.store.keys import digest, well_formed
from gateway.store.registry import Registry
from tests.admin.api_client import call, error_of

LIMITLESS = dict.fromkeys(LIMIT_NAMES)
SECRET = "an-old-key-of-ours-4471"


async def create_key(client: Any, **fields: Any) -> dict[str, Any]:
    status, created = await call(client, "POST", "keys", {"name": "alice"} | fields)
    assert status == 201, created
    return dict(created)


async def test_all_settings_of_a_key(client, admin) -> None:
    fields = {
        "note": "for the team",
        "expires_at": admin.clock.now + 1,
        "probe": True,
        "models": ["beta-*", "family:alpha"],
        "addresses": ["10.0.0.0/8", "192.0.2.7", "2001:db8::1"],
        "user_agents": ["codex", "re:claude-(cli|code)/", ""],
        "limits": {"requests_per_minute": 0, "budget": 5_000_000},
    }
    created = await create_key(client, **fields)
    assert {name: created[name] for name in fields} == fields | {
        "addresses": ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::1/128"],
        "limits": LIMITLESS | {"requests_per_minute": 0, "budget": 5_000_000},
    }
    key = created.pop("key")
    assert await call(client, "GET", f"keys/{created['id']}") == (200, created)
    token = admin.registry.find(digest(key))
    assert token is not None
    assert (token.models, token.limits.budget) == (("beta-*", "family:alpha"), 5_000_000)
    assert (await Registry.load(admin.database)).find(digest(key)) == token


async def test_absent_fields_stay_and_null_clears(client, admin) -> None:
    created = await create_key(
        client, note="n", models=["*"], limits={"concurrent": 2, "budget_day": 7}, probe=True
    )
    path, key = f"keys/{created['id']}", created.pop("key")
    assert await call(client, "PATCH", path, {}) == (200, created)
    changes = {"name": "bob", "note": None, "limits": {"concurrent": None, "budget": 1}}
    status, changed = await call(client, "PATCH", path, changes)
    limits = LIMITLESS | {"budget_day": 7, "budget": 1}
    assert (status, changed) == (200, created | changes | {"limits": limits})
    token = admin.registry.find(digest(key))
    assert token is not None
    assert (token.name, token.note, token.limits.budget_day) == ("bob", None, 7)
    changes = {"limits": None, "models": None, "probe": False}
    status, cleared = await call(client, "PATCH", path, changes)
    assert cleared == changed | changes | {"limits": LIMITLESS}
    assert await call(client, "GET", path) == (200, cleared)


async def test_a_disabled_key_is_rejected_until_enabled(client, admin) -> None:
    created = await create_key(client)
    path, key = f"keys/{created['id']}", created.pop("key")
    for state, found in (("disabled", False), ("disabled", False), ("active", True)):
        status, changed = await call(client, "PATCH", path, {"state": state})
        assert (status, changed) == (200, created | {"state": state})
        assert (admin.registry.find(digest(key)) is not None) is found
    assert (await Registry.load(admin.database)).find(digest(key)) is not None


async def test_a_rotation_keeps_both_keys_during_the_overlap(client, admin) -> None:
    created = await create_key(client, limits={"budget": 9})
    path, first = f"keys/{created['id']}", created.pop("key")
    status, rotated = await call(client, "POST", f"{path}/rotate", {"overlap_s": 60})
    second = rotated.pop("key")
    assert (status, well_formed(second), second != first) == (200, True, True)
    assert rotated == created | {
        "display": rotated["display"],
        "old_display": created["display"],
        "old_expires_at": admin.clock.now + 60_000_000,
    }
    for key in (first, second):
        token = admin.registry.find(digest(key))
        assert token is not None
        assert (token.id, token.limits.budget) == (created["id"], 9)
    status, rotated = await call(client, "POST", f"{path}/rotate", {"overlap_s": 60})
    third = rotated.pop("key")
    assert [admin.registry.find(digest(key)) is None for key in (first, second, third)] == [
        True,
        False,
        False,
    ]
    status, rotated = await call(client, "POST", f"{path}/rotate", {"overlap_s": 0})
    fourth = rotated.pop("key")
    assert (rotated["old_display"], rotated["old_expires_at"]) == (None, None)
    registry = await Registry.load(admin.database)
    for known in (admin.registry, registry):
        assert known.find(digest(third)) is None
        assert known.find(digest(fourth)) is not None


async def test_a_revocation_includes_the_old_key(client, admin) -> None:
    created = await create_key(client)
    path = f"keys/{created['id']}"
    _, rotated = await call(client, "POST", f"{path}/rotate", {"overlap_s": 60})
    await call(client, "DELETE", path)
    for key in (created["key"], rotated["key"]):
        assert admin.registry.find(digest(key)) is None
    for method, change, body in (
        ("PATCH", path, {"state": "active"}),
        ("PATCH", path, {"note": "n"}),
        ("POST", f"{path}/rotate", {"overlap_s": 60}),
    ):
        status, code, message = error_of(await call(client, method, change, body))
        assert (status, code) == (409, "key_revoked")
        assert message == f"alice ({created['id']}) is revoked permanently: create another key."


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": None}, (400, "name: Input should be a valid string")),
        ({"state": "revoked"}, (400, "state: Input should be")),
        ({"group": "nope"}, (404, "There is no group nope")),
        ({"expires_at": 5}, (400, "The expiry must be in the future; to end a key now, disable")),
        ({"limits": {"budget": -1}}, (400, "limits.budget: Input should be greater")),
        ({"limits": {"budget": "5"}}, (400, "limits.budget: Input should be a valid integer")),
        ({"limits": {"budget": True}}, (400, "limits.budget: Input should be a valid integer")),
        ({"limits": {"colour": 1}}, (400, "limits.colour: Extra inputs")),
        ({"models": []}, (400, "models: List should have at least 1")),
        ({"models": ["a,b"]}, (400, "models.0: must be one id")),
        ({"user_agents": ["re:("]}, (400, "user_agents.0: is no regular expression")),
        ({"user_agents": ["a\x1b"]}, (400, "user_agents.0: must not have control characters")),
        ({"note": ""}, (400, "note: String should have at least 1")),
        ({"digest": "x"}, (400, "digest: Extra inputs")),
    ],
)
async def test_refused_changes(client, body: Any, expected: tuple[int, str]) -> None:
    created = await create_key(client)
    created.pop("key")
    path = f"keys/{created['id']}"
    status, _, message = error_of(await call(client, "PATCH", path, body))
    assert status == expected[0]
    assert message.startswith(expected[1])
    assert "; " not in message.replace("future; ", "").replace("nope; ", ""), "one mistake"
    assert await call(client, "GET", path) == (200, created)


async def test_unknown_keys(client) -> None:
    for method, path, body in (
        ("PATCH", "keys/tok_x", {"note": "n"}),
        ("POST", "keys/tok_x/rotate", {"overlap_s": 0}),
    ):
        assert error_of(await call(client, method, path, body))[:2] == (404, "key_not_found")
    answer = await call(client, "POST", "keys/tok_x/rotate", {"overlap_s": -1})
    assert error_of(answer)[2].startswith("overlap_s: Input should be")


async def test_many_keys(client, admin) -> None:
    keys = [{"name": f"key {number}", "limits": {"budget": number}} for number in range(3)]
    keys.append({"name": "taken over", "key": SECRET})
    assert await call(client, "POST", "keys/import", {"keys": keys, "dry_run": True}) == (
        200,
        {"ok": True, "keys": []},
    )
    assert await admin.operations.list_keys() == []
    status, answer = await call(client, "POST", "keys/import", {"keys": keys})
    assert (status, answer["ok"]) == (200, True)
    assert [made["name"] for made in answer["keys"]] == [each["name"] for each in keys]
    assert answer["keys"][3]["key"] == SECRET
    for made in answer["keys"]:
        token = admin.registry.find(digest(made["key"]))
        assert token is not None
        assert token.id == made["id"]
    assert len(await admin.operations.list_keys()) == 4


async def test_an_import_is_atomic_and_reports_every_error(client, admin) -> None:
    token, key = await admin.operations.create_key("alice", "default")
    keys = [
        {"name": "good"},
        {"name": " bad", "group": "nope", "limits": {"budget": -1}},
        {"name": "late", "expires_at": admin.clock.now},
        {"name": "hers", "key": key},
        {"name": "one", "key": SECRET},
        {"name": "two", "key": SECRET},
        {"name": "short", "key": "sk-short"},
        {"name": "blank", "key": "a key with blanks in it", "colour": "red"},
        {},
    ]
    for dry_run in (True, False):
        body = {"keys": keys, "dry_run": dry_run}
        status, answer = await call(client, "POST", "keys/import", body)
        assert (status, set(answer), answer["ok"]) == (200, {"ok", "mistakes"}, False)
        errors = [(each["index"], each["field"], each["message"]) for each in answer["mistakes"]]
        assert [(index, field) for index, field, _ in errors] == [
            (1, "limits.budget"),
            (1, "name"),
            (1, "group"),
            (2, "expires_at"),
            (3, "key"),
            (5, "key"),
            (6, "key"),
            (7, "key"),
            (7, "colour"),
            (8, "name"),
        ]
        assert errors[4][2] == f"This is already the key of alice ({token.id})."
        assert errors[5][2] == "This is already the key of one in the same import."
        assert not any(secret in str(errors) for secret in (key, SECRET, "sk-short"))
        assert await admin.operations.list_keys() == [token]


async def test_an_old_key_cannot_be_imported(client, admin) -> None:
    token, key = await admin.operations.create_key("alice", "default")
    await admin.operations.rotate_key(token.id, 60)
    body = {"keys": [{"name": "thief", "key": key}]}
    _, answer = await call(client, "POST", "keys/import", body)
    (mistake,) = answer["mistakes"]
    assert mistake["message"] == f"This is already the key of alice ({token.id})."


@pytest.mark.parametrize("keys", [[], [{"name": "a"}] * 201, ["a"], None])
async def test_malformed_imports(client, keys: Any) -> None:
    assert error_of(await call(client, "POST", "keys/import", {"keys": keys}))[0] == 400


async def test_all_settings_of_a_group(client, admin) -> None:
    fields = {
        "patterns": ["*"],
        "multiplier": "0.50",
        "limits": {"tokens_per_minute": 9},
        "user_agents": ["codex"],
        "user_agent_mode": "observe",
    }
    status, added = await call(client, "POST", "groups", {"name": "team"} | fields)
    assert (status, added["multiplier"]) == (201, "0.5")
    assert added["limits"] == LIMITLESS | {"tokens_per_minute": 9}
    assert await call(client, "PATCH", "groups/team", {}) == (200, added)
    changes = {"user_agents": None, "limits": {"concurrent": 1}, "multiplier": "1.250"}
    status, changed = await call(client, "PATCH", "groups/team", changes)
    limits = LIMITLESS | {"tokens_per_minute": 9, "concurrent": 1}
    assert changed == added | {"user_agents": None, "limits": limits, "multiplier": "1.25"}
    group = (await Registry.load(admin.database)).group("team")
    assert group == admin.registry.group("team")
    assert group is not None
    assert (group.multiplier, group.limits.concurrent, group.patterns) == ("1.25", 1, ("*",))


@pytest.mark.parametrize(
    "change",
    [
        {"multiplier": "-1"},
        {"multiplier": "1e3"},
        {"multiplier": "1000000.1"},
        {"multiplier": "0.1234567891"},
        {"multiplier": 1.5},
        {"multiplier": None},
        {"user_agent_mode": "off"},
        {"user_agents": []},
        {"name": "other"},
    ],
)
async def test_refused_changes_of_a_group(client, change: Any) -> None:
    before = await call(client, "GET", "groups/default")
    assert error_of(await call(client, "PATCH", "groups/default", change))[:2] == (
        400,
        "invalid_request",
    )
    assert await call(client, "GET", "groups/default") == before
