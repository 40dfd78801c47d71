"""Operations change the database and the registry in memory alike."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gateway.admin.api.key_forms import ImportedKeyForm
from gateway.admin.errors import GroupExists, GroupInUse, ImportRejected, UnknownGroup, UnknownKey
from gateway.admin.operations import AdminOperations
from gateway.admission.key_origins import KeyOriginMonitor
from gateway.core.limits import Limits
from gateway.store.keys import digest, well_formed
from gateway.store.log.recorder import Recorder
from gateway.store.records import Token, TokenState
from gateway.store.registry import Registry
from gateway.store.tokens import record_origin
from tests.store.sample_rows import intent, settlement


async def test_a_new_key_works_immediately_and_after_a_restart(admin) -> None:
    token, key = await admin.operations.create_key("alice", "default")
    assert well_formed(key)
    assert token.id.startswith("tok_")
    assert token.created_at == admin.clock.now
    assert key not in repr(token)
    assert admin.registry.find(digest(key)) == token
    again = await Registry.load(admin.database)
    assert again.find(digest(key)) == token


async def test_a_revoked_key_ends_immediately_and_permanently(admin) -> None:
    token, key = await admin.operations.create_key("alice", "default")
    admin.clock.now += 5
    revoked = await admin.operations.revoke_key(token.id)
    assert (revoked.state, revoked.revoked_at) == (TokenState.REVOKED, admin.clock.now)
    assert admin.registry.find(digest(key)) is None
    assert (await Registry.load(admin.database)).find(digest(key)) is None
    admin.clock.now += 5
    assert await admin.operations.revoke_key(token.id) == revoked
    assert await admin.operations.list_keys() == [revoked]


async def test_revoking_an_unknown_key(admin) -> None:
    with pytest.raises(UnknownKey, match="tok_nobody"):
        await admin.operations.revoke_key("tok_nobody")


async def test_a_key_needs_a_group_that_exists(admin) -> None:
    with pytest.raises(UnknownGroup, match=r"no group nope; the groups are: default\."):
        await admin.operations.create_key("alice", "nope")
    assert await admin.operations.list_keys() == []


async def test_groups_change_in_memory_and_in_the_database(admin) -> None:
    version = admin.registry.version
    added = await admin.operations.create_group("team", ["beta-*"])
    assert added.created_at == admin.clock.now
    admin.clock.now += 5
    changed = await admin.operations.update_group("team", ["family:alpha"])
    assert (changed.patterns, changed.created_at) == (("family:alpha",), added.created_at)
    assert admin.registry.version == version + 2
    assert admin.operations.get_group("team") == changed
    assert (await Registry.load(admin.database)).group("team") == changed
    await admin.operations.delete_group("team")
    assert admin.registry.version == version + 3
    assert (await Registry.load(admin.database)).group("team") is None


async def test_existing_and_unknown_groups(admin) -> None:
    with pytest.raises(GroupExists):
        await admin.operations.create_group("default", ["*"])
    with pytest.raises(UnknownGroup):
        await admin.operations.update_group("team", ["*"])
    with pytest.raises(UnknownGroup):
        await admin.operations.delete_group("team")


async def test_a_group_with_keys_is_not_removed(admin) -> None:
    token, _ = await admin.operations.create_key("alice", "default")
    await admin.operations.revoke_key(token.id)
    with pytest.raises(GroupInUse, match=f"alice \\({token.id}\\)"):
        await admin.operations.delete_group("default")
    assert admin.operations.get_group("default")


async def test_a_key_created_while_its_group_is_removed(admin) -> None:
    await admin.operations.create_group("team", ["*"])
    outcomes = await asyncio.gather(
        admin.operations.create_key("alice", "team"),
        admin.operations.delete_group("team"),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Exception) for outcome in outcomes) == 1
    for token in await admin.operations.list_keys():
        assert admin.registry.group(token.group)


async def test_totals_match_the_database(admin) -> None:
    token, _ = await admin.operations.create_key("alice", "default")
    recorder = Recorder(admin.database)
    await recorder.start()
    for number in range(3):
        recorder.record_intent(intent(number, token.id))
        recorder.record_settlement(settlement(number, token.id, input_tokens=11, output_tokens=7))
    results = [
        await admin.operations.create_key(f"during-{number}", "default") for number in range(3)
    ]
    await recorder.close()
    stored = await admin.operations.get_key(token.id)
    assert (stored.requests, stored.input_tokens, stored.output_tokens) == (3, 33, 21)
    assert len(results) == 3


async def test_a_change_applies_in_memory_and_in_the_database(admin) -> None:
    await admin.operations.create_group("team", ["*"])
    token, key = await admin.operations.create_key("alice", "default", limits={"concurrent": 1})
    changed = await admin.operations.update_key(token.id, group="team", limits={"budget": 5})
    assert (changed.group, changed.limits) == ("team", Limits(concurrent=1, budget=5))
    assert admin.registry.find(digest(key)) == changed
    assert (await Registry.load(admin.database)).find(digest(key)) == changed
    with pytest.raises(UnknownGroup):
        await admin.operations.update_key(token.id, group="nope", note="never")
    assert await admin.operations.get_key(token.id) == changed


async def test_a_change_keeps_counted_usage(admin) -> None:
    token, _ = await admin.operations.create_key("alice", "default")
    recorder = Recorder(admin.database)
    await recorder.start()
    for number in range(50):
        recorder.record_intent(intent(number, token.id))
        recorder.record_settlement(settlement(number, token.id, input_tokens=1, cost_micro=3))
        if number % 10 == 0:
            await admin.operations.update_key(token.id, note=f"note {number}")
            await admin.operations.rotate_key(token.id, 10)
    await recorder.close()
    stored = await admin.operations.get_key(token.id)
    assert (stored.requests, stored.input_tokens, stored.cost_micro) == (50, 50, 150)
    assert stored.note == "note 40"
    assert (await admin.operations.check_integrity()).ok


async def test_a_client_seen_during_a_change_is_kept(admin) -> None:
    token, _ = await admin.operations.create_key("alice", "default")
    door = KeyOriginMonitor(admin.registry, partial(record_origin, admin.database), admin.clock)

    async def during_a_change(address: str) -> Token:
        changing = asyncio.ensure_future(admin.operations.update_key(token.id, note=address))
        await asyncio.sleep(0)
        door.observe(admin.registry.token(token.id), address, "tool/1")
        assert not changing.done()
        changed = await changing
        assert admin.registry.token(token.id) == changed
        await door.close()
        return changed

    first = await during_a_change("192.0.2.1")
    assert (first.first_address, first.first_agent) == ("192.0.2.1", "tool")
    described = "address 192.0.2.2, first 192.0.2.1"
    second = await during_a_change("192.0.2.2")
    assert (second.note, second.first_address, second.changed) == (
        "192.0.2.2",
        "192.0.2.1",
        described,
    )
    assert await admin.operations.get_key(token.id) == second


async def test_clients_are_kept_while_the_key_is_absent(admin) -> None:
    """A disabled key is not in memory: the database tells then."""
    token, _ = await admin.operations.create_key("alice", "default")
    await record_origin(admin.database, token.id, first=(1, "192.0.2.1", "tool"))
    for state in (TokenState.DISABLED, TokenState.ACTIVE):
        changed = await admin.operations.update_key(token.id, state=state)
    assert changed.first_address == "192.0.2.1"
    assert admin.registry.token(token.id) == changed


async def test_imported_keys_keep_their_order(admin) -> None:
    names = [f"key {number}" for number in range(20)]
    made = await admin.operations.import_keys([ImportedKeyForm(name=name) for name in names])
    assert [token.name for token, _ in made] == names
    assert [token.name for token in await admin.operations.list_keys()] == names


async def test_an_imported_key_trusts_what_has_budgets(admin) -> None:
    forms = [
        ImportedKeyForm(name="a", trust=["end-user=x-mail"], budget_day_per_user=1),
        ImportedKeyForm(name="b", trust=["session"], budget_usd_day_per_user=1),
    ]
    with pytest.raises(ImportRejected) as rejected:
        await admin.operations.import_keys(forms)
    ((row, field, message),) = [
        (each.index, each.field, each.message) for each in rejected.value.row_errors
    ]
    assert (row, field) == (1, "budget_usd_day_per_user")
    assert "trusts end-user" in message


async def test_concurrent_imports_of_one_key(admin) -> None:
    form = ImportedKeyForm(name="taken over", key="an-old-key-of-ours-4471")
    outcomes = await asyncio.gather(
        admin.operations.import_keys([form]),
        admin.operations.import_keys([form]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes].count(ImportRejected) == 1
    assert len(await admin.operations.list_keys()) == 1


async def test_a_second_instance_reads_what_the_first_wrote(admin) -> None:
    await admin.operations.create_key("alice", "default")
    other = AdminOperations(admin.database, await Registry.load(admin.database), admin.clock)
    assert await other.list_keys() == await admin.operations.list_keys()
