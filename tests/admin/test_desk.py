"""The desk's operations: what they change, in the database and in memory alike."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admin.desk import Desk, GroupExists, GroupInUse, UnknownGroup, UnknownKey
from gateway.store.keys import digest, well_formed
from gateway.store.recorder import Recorder
from gateway.store.records import TokenState
from gateway.store.registry import Registry


async def test_a_minted_key_counts_at_once_and_after_a_restart(house) -> None:
    token, key = await house.desk.mint_key("alice", "default")
    assert well_formed(key)
    assert token.id.startswith("tok_")
    assert token.created_at == house.clock.now
    assert key not in repr(token)
    assert house.registry.find(digest(key)) == token
    again = await Registry.load(house.database)
    assert again.find(digest(key)) == token


async def test_a_revoked_key_is_gone_at_once_and_for_good(house) -> None:
    token, key = await house.desk.mint_key("alice", "default")
    house.clock.now += 5
    revoked = await house.desk.revoke_key(token.id)
    assert (revoked.state, revoked.revoked_at) == (TokenState.REVOKED, house.clock.now)
    assert house.registry.find(digest(key)) is None
    assert (await Registry.load(house.database)).find(digest(key)) is None
    house.clock.now += 5
    assert await house.desk.revoke_key(token.id) == revoked
    assert await house.desk.keys() == [revoked]


async def test_revoking_an_unknown_key(house) -> None:
    with pytest.raises(UnknownKey, match="tok_nobody"):
        await house.desk.revoke_key("tok_nobody")


async def test_a_key_needs_a_group_that_exists(house) -> None:
    with pytest.raises(UnknownGroup, match=r"no group nope; the groups are: default\."):
        await house.desk.mint_key("alice", "nope")
    assert await house.desk.keys() == []


async def test_groups_change_in_memory_and_in_the_database(house) -> None:
    version = house.registry.version
    added = await house.desk.add_group("team", ["beta-*"])
    assert added.created_at == house.clock.now
    house.clock.now += 5
    changed = await house.desk.set_group("team", ["family:alpha"])
    assert (changed.patterns, changed.created_at) == (("family:alpha",), added.created_at)
    assert house.registry.version == version + 2
    assert house.desk.group("team") == changed
    assert (await Registry.load(house.database)).group("team") == changed
    await house.desk.remove_group("team")
    assert house.registry.version == version + 3
    assert (await Registry.load(house.database)).group("team") is None


async def test_groups_that_exist_and_that_do_not(house) -> None:
    with pytest.raises(GroupExists):
        await house.desk.add_group("default", ["*"])
    with pytest.raises(UnknownGroup):
        await house.desk.set_group("team", ["*"])
    with pytest.raises(UnknownGroup):
        await house.desk.remove_group("team")


async def test_a_group_stays_while_a_key_names_it(house) -> None:
    token, _ = await house.desk.mint_key("alice", "default")
    await house.desk.revoke_key(token.id)
    with pytest.raises(GroupInUse, match=f"alice \\({token.id}\\)"):
        await house.desk.remove_group("default")
    assert house.desk.group("default")


async def test_a_key_and_the_end_of_its_group_at_once(house) -> None:
    await house.desk.add_group("team", ["*"])
    outcomes = await asyncio.gather(
        house.desk.mint_key("alice", "team"),
        house.desk.remove_group("team"),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Exception) for outcome in outcomes) == 1
    for token in await house.desk.keys():
        assert house.registry.group(token.group)


async def test_totals_are_those_of_the_ledger(house, exchange) -> None:
    token, _ = await house.desk.mint_key("alice", "default")
    recorder = Recorder(house.database)
    await recorder.start()
    for number in range(3):
        intent, settlement = exchange(number, token.id)
        recorder.intend(intent)
        recorder.settle(settlement)
    minted = [await house.desk.mint_key(f"during-{number}", "default") for number in range(3)]
    await recorder.close()
    found = await house.desk.key(token.id)
    assert (found.requests, found.input_tokens, found.output_tokens) == (3, 33, 21)
    assert len(minted) == 3


async def test_a_second_desk_reads_what_the_first_wrote(house) -> None:
    await house.desk.mint_key("alice", "default")
    other = Desk(house.database, await Registry.load(house.database), house.clock)
    assert await other.keys() == await house.desk.keys()
