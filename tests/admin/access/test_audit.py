"""The audit log: one transaction with the change, bounded rows, no secrets, who acts."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import re
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from sqlalchemy.exc import SQLAlchemyError

from gateway.admin.access.audit import MAX_FIELDS, MAX_TEXT, Audit, differing
from gateway.admin.access.permissions import Actor, acting_as, current_actor
from gateway.admin.api.key_forms import ImportedKeyForm
from gateway.admin.retention import delete_old_actions
from gateway.store.audit import AuditFilter, add, page
from gateway.store.records import AuditRow, TokenState
from tests.admin.api_client import call
from tests.admin.config_follower import ConfigFollower, follow_config, messages_channel
from tests.admin.conftest import AdminFixture
from tests.console.access_api import access_of, audited
from tests.resilience.faults.upstream import fault_upstream
from tests.support.gateway import RunningGateway

ALICE = Actor("admin: alice", "192.0.2.7")


async def rows(admin: AdminFixture, **matching: Any) -> list[AuditRow]:
    return (await page(admin.database, AuditFilter(**matching), limit=1000))[::-1]


def fields(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


async def test_a_row_has_what_changed(admin: AdminFixture) -> None:
    token, key = await admin.operations.create_key("a key", "default", note="first")
    with acting_as(ALICE):
        await admin.operations.update_key(token.id, note="second", limits={"concurrent": 3})
        await admin.operations.update_key(token.id, limits=None, state=TokenState.DISABLED)
        await admin.operations.rotate_key(token.id, 0)
        await admin.operations.revoke_key(token.id)
    created, first, second, rotated, revoked = await rows(admin)
    assert (created.actor, created.address, created.action) == ("gateway", None, "key.create")
    assert fields(created.before) is None
    assert fields(created.after)["note"] == "first"
    assert {row.actor for row in (first, second, rotated, revoked)} == {"admin: alice"}
    assert {row.address for row in (first, second, rotated, revoked)} == {"192.0.2.7"}
    assert {row.target for row in (created, first, revoked)} == {f"a key ({token.id})"}
    for target in (f"a key ({token.id})", "a key", token.id):
        assert len(await rows(admin, target=target)) == 5
    assert await rows(admin, target="a") == await rows(admin, target="tok_%") == []
    assert fields(first.before) == {"note": "first"}
    assert fields(first.after) == {"note": "second", "concurrent": 3}
    assert fields(second.before) == {"concurrent": 3, "state": "active"}
    assert fields(second.after) == {"state": "disabled"}
    assert set(fields(rotated.after)) == {"display"}
    assert fields(revoked.after)["state"] == "revoked"
    assert key not in repr(await rows(admin))
    assert token.digest.hex() not in repr(await rows(admin))


async def test_groups(admin: AdminFixture) -> None:
    await admin.operations.create_group("team", ["beta-*"], limits={"budget": 5})
    await admin.operations.update_group("team", ["*"])
    await admin.operations.update_group("team", ["*"])
    await admin.operations.delete_group("team")
    created, updated, removed = await rows(admin)
    assert fields(created.after)["budget"] == 5
    assert (fields(updated.before), fields(updated.after)) == (
        {"patterns": ["beta-*"]},
        {"patterns": ["*"]},
    )
    assert (removed.action, removed.target) == ("group.remove", "team")
    assert fields(removed.before)["patterns"] == ["*"]


async def test_an_import_is_one_row(admin: AdminFixture) -> None:
    forms = [ImportedKeyForm(name=f"key {n}", key=f"imported-secret-{n:030}") for n in range(200)]
    await admin.operations.import_keys(forms, dry_run=True)
    assert await rows(admin) == []
    await admin.operations.import_keys(forms)
    (row,) = await rows(admin)
    assert fields(row.after)["count"] == 200
    assert "imported-secret" not in repr(row)


async def test_a_change_and_its_row_are_one_transaction(
    admin: AdminFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the row cannot be written, nothing is changed; nor is there a row without the change."""
    row = "gateway.admin.access.audit.Audit._row"
    original = Audit._row

    def without_actor(self: Audit, *arguments: Any) -> AuditRow:
        return original(self, *arguments)._replace(actor=None)  # type: ignore[arg-type]

    monkeypatch.setattr(row, without_actor)
    with pytest.raises(SQLAlchemyError):
        await admin.operations.create_key("a key", "default")
    monkeypatch.undo()
    assert await admin.operations.list_keys() == []
    assert await rows(admin) == []


@pytest.mark.parametrize(
    "value",
    ["x" * 100_000, ["pattern"] * 50_000, {"a": "\ud800"}, "\x1b[31m\u202e\0", "\ud800", 10**30],
)
async def test_rows_are_bounded_and_valid(admin: AdminFixture, value: Any) -> None:
    audit = admin.operations.audit
    target = "t\x1b\n\u202e\0\ud800" + "x" * 10_000
    await audit.record("test", target, after={"field": value, "other": 1})
    await audit.record("test", "many", after={f"field {n}": value for n in range(1000)})
    one, many = await rows(admin)
    assert one.target is not None
    assert len(one.target) <= MAX_TEXT
    assert one.target.isprintable()
    for row in (one, many):
        assert row.after is not None
        assert len(row.after.encode()) <= MAX_FIELDS
        assert fields(row.after)
    assert fields(one.after)["other"] == 1


def test_only_fields_that_differ() -> None:
    assert differing({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ({"b": 2}, {"b": 3, "c": 4})
    assert differing({"a": 1}, {}) == ({"a": 1}, {})


async def test_what_cannot_be_stored_is_logged(
    admin: AdminFixture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has happened, such as an account that was disabled while the disk is full."""

    async def fail(*_: object) -> None:
        raise SQLAlchemyError("full")

    monkeypatch.setattr("gateway.store.audit.add", fail)
    with caplog.at_level(logging.ERROR):
        await admin.operations.audit.record("account.disable", "a/b\n\x1b[31m")
    (record,) = caplog.records
    assert "gateway account.disable a/b\\n\\x1b[31m: not stored" in record.getMessage()


async def test_filters_and_pages(admin: AdminFixture) -> None:
    audit = admin.operations.audit
    for number, (actor, action) in enumerate(
        [("admin: alice", "key.create"), ("token: 100% (x)", "key.revoke"), ("gateway", "keys.x")]
    ):
        admin.clock.now += 1_000_000
        with acting_as(Actor(actor)):
            await audit.record(action, f"target {number}")
    times = [row.at for row in await rows(admin)]
    assert len(await rows(admin, action="key")) == 2
    assert len(await rows(admin, action="key.create")) == 1
    assert len(await rows(admin, actor="alice")) == 1
    assert [row.actor for row in await rows(admin, actor="%")] == ["token: 100% (x)"]
    assert len(await rows(admin, target="target 2")) == 1
    assert len(await rows(admin, target="target")) == 0
    assert len(await rows(admin, since=times[1])) == 2
    assert len(await rows(admin, until=times[1])) == 1
    newest = await page(admin.database, AuditFilter(), limit=2)
    (oldest,) = await page(admin.database, AuditFilter(), limit=2, before=newest[-1].id)
    assert [row.at for row in (*newest, oldest)] == times[::-1]


async def test_the_actor_is_that_of_its_task(admin: AdminFixture) -> None:
    async def act(name: str) -> str:
        with acting_as(Actor(name)):
            await asyncio.sleep(0.01)
            return current_actor().name

    names = [f"admin: {n}" for n in range(20)]
    assert await asyncio.gather(*map(act, names)) == names
    assert current_actor().name == "gateway"


async def test_the_socket_knows_the_user(
    admin: AdminFixture, client: aiohttp.ClientSession
) -> None:
    await call(client, "POST", "keys", {"name": "by a command"})
    (row,) = await rows(admin)
    assert row.actor == f"socket: {os.geteuid()}/{getpass.getuser()}"
    assert row.address is None


async def test_reloads_by_file_and_signal_and_their_results(tmp_path: Path) -> None:
    async with (
        fault_upstream() as upstream,
        follow_config(tmp_path, messages_channel(upstream, "one"), period=0.05) as it,
    ):
        await reloads(it, 0)
        it.configure(messages_channel(upstream, "two"))
        (changed,) = await reloads(it, 1)
        assert changed.actor == "file watcher"
        after = fields(changed.after)
        assert (after["ok"], after["hash"]) == (True, it.runtime.current.hash)
        assert after["removed"] == ["account messages-main/one"]
        it.write("channels: {secret-4471: 7}")
        _, invalid = await reloads(it, 2)
        assert fields(invalid.after) == {
            "ok": False,
            "error": "channels.yaml:1: 1 error, see the process log",
        }
        it.gateway.daemon.reload()
        *_, signalled = await reloads(it, 3)
        assert signalled.actor == "signal"
        assert "4471" not in repr(await audited(it.gateway))


async def reloads(it: ConfigFollower, count: int) -> list[AuditRow]:
    """Once there are so many."""
    async with asyncio.timeout(10):
        while len(rows := await audited(it.gateway, action="config.reload")) < count:
            await asyncio.sleep(0.02)
    assert len(rows) == count
    return rows


async def test_rows_expire(gateway: RunningGateway) -> None:
    audit, runtime = access_of(gateway).audit, gateway.daemon.runtime
    keep = runtime.config.audit.keep
    assert keep == 400 * 86_400
    old = runtime.now() - int((keep + 3600) * 1e6)
    await add(
        audit.database,
        [
            AuditRow(f"aud_{old:014x}{n:010}", old, "gateway", None, "old", None, None, None)
            for n in range(1200)
        ],
    )
    new = await audited(gateway, since=old + 1)
    assert new != []
    # The gateway's own round, at its start, may delete some of them or all.
    await delete_old_actions(runtime, audit)
    async with asyncio.timeout(10):
        while await audited(gateway, until=old + 1):
            await asyncio.sleep(0.01)
    assert set(new) <= set(await audited(gateway))


async def test_changes_by_commands_of_a_running_gateway(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    connector = aiohttp.UnixConnector(str(tmp_path / "admin.sock"))
    async with aiohttp.ClientSession("http://gateway/admin/api/", connector=connector) as client:
        _, content = await call(client, "GET", "accounts")
        name = "{channel}/{account}".format(**content["accounts"][0])
        assert (await call(client, "PUT", f"accounts/{name}/disable"))[0] == 200
        assert (await call(client, "PUT", "accounts/x/y/disable"))[0] == 404
        _, content = await call(client, "GET", "audit", action="account")
    (row,) = content["actions"]
    assert row["target"] == name
    assert re.fullmatch(r"socket: \d+/\w+", row["actor"])
