"""Tokens: added, read back whole, changed by an operator, revoked once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.limits import Limits
from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import TokenExists, UnknownGroup
from gateway.store.records import Group, OnSharedLoss, Token, TokenState, UserAgentMode
from tests.store.sample_rows import START, token
from tests.support.databases import raw_connection

WHAT_HAPPENED: dict[str, Any] = {
    "requests": 1,
    "input_tokens": 2,
    "output_tokens": 3,
    "cost_micro": 4,
    "last_used_at": 5,
    "first_used_at": 6,
    "first_address": "192.0.2.7",
    "first_agent": "client/1.0",
    "changed_at": 8,
    "changed": "another address",
}


def whole(number: int, **changes: Any) -> Token:
    """A token of which every field says something."""
    fields: dict[str, Any] = {
        "state": TokenState.DISABLED,
        "revoked_at": 9,
        "note": "of the night shift",
        "expires_at": START + 1,
        "probe": True,
        "models": ("beta-*", "family:alpha"),
        "addresses": ("192.0.2.0/24", "2001:db8::/32"),
        "user_agents": (),
        "limits": Limits(
            requests_per_minute=1,
            tokens_per_minute=2,
            concurrent=0,
            budget=10**16,
            budget_day=5,
            budget_month=6,
        ),
        "old_digest": number.to_bytes(32, "big"),
        "old_display": "sk-old",
        "old_expires_at": START + 2,
    }
    return token(number, **WHAT_HAPPENED | fields | changes)


async def test_a_token_is_stored_completely(database: Database) -> None:
    added = [whole(1, name="x'; DROP TABLE tokens; --"), token(2)]
    await tokens.add_tokens(database, added)
    first, *others = await tokens.all_tokens(database)
    assert first.id == "tok_0"
    assert others == added
    assert isinstance(others[0].state, TokenState)
    assert others[0].probe is True


async def test_one_token_among_many(database: Database) -> None:
    wanted = whole(1)
    await tokens.add_tokens(database, [wanted, token(2)])
    assert await tokens.get_token(database, wanted.id) == wanted
    assert await tokens.get_token(database, "tok_9") is None


async def test_tokens_of_keys(database: Database) -> None:
    old, new = whole(1), token(2)
    await tokens.add_tokens(database, [old, new])
    assert old.old_digest is not None
    assert await tokens.tokens_by_digest(database, [old.old_digest, b"nobody's"]) == [old]
    found = await tokens.tokens_by_digest(database, [old.digest, new.digest])
    assert sorted(each.id for each in found) == [old.id, new.id]
    assert await tokens.tokens_by_digest(database, []) == []


async def test_adding_many_is_atomic(database: Database) -> None:
    await tokens.add_tokens(database, [])
    many = [token(number) for number in range(1, 300)]
    rotated = whole(300)
    for bad, error in (
        (token(301, group="nowhere"), UnknownGroup),
        (token(301, digest=many[0].digest), TokenExists),
        (token(301, digest=rotated.old_digest), TokenExists),
        (replace(token(301), id=many[5].id), TokenExists),
    ):
        with pytest.raises(error):
            await tokens.add_tokens(database, [*many, rotated, bad])
    assert len(await tokens.all_tokens(database)) == 1
    await tokens.add_tokens(database, [*many, rotated])
    assert len(await tokens.all_tokens(database)) == 301


async def test_unknown_groups_and_taken_keys_are_refused(database: Database) -> None:
    await tokens.add_token(database, whole(1))
    with pytest.raises(UnknownGroup, match="nowhere"):
        await tokens.add_token(database, token(2, group="nowhere"))
    there = await tokens.all_tokens(database)
    for taken in (
        replace(there[0], id="tok_9"),
        token(9, id=there[0].id),
        token(9, digest=there[1].old_digest, name="twin"),
        token(9, old_digest=there[0].digest, name="twin"),
    ):
        with pytest.raises(TokenExists, match=taken.name):
            await tokens.add_token(database, taken)
    assert await tokens.all_tokens(database) == there


async def test_operators_set_all_fields_except_usage(database: Database, path: Path) -> None:
    await tokens.put_group(database, Group("team", ("*",), START))
    (before,) = await tokens.all_tokens(database)
    wanted = whole(0, name="new", group="team", created_at=before.created_at)
    assert await tokens.update_token(database, wanted)
    (after,) = await tokens.all_tokens(database)
    assert after == replace(wanted, **{name: getattr(before, name) for name in WHAT_HAPPENED})
    with raw_connection(path) as connection:
        assigned = ", ".join(f"{name} = ?" for name in WHAT_HAPPENED)
        connection.execute(f"UPDATE tokens SET {assigned}", tuple(WHAT_HAPPENED.values()))
    assert await tokens.update_token(database, before)
    assert await tokens.all_tokens(database) == [replace(before, **WHAT_HAPPENED)]


async def test_a_rotated_key_keeps_its_token(database: Database) -> None:
    (before,) = await tokens.all_tokens(database)
    rotated = replace(
        before,
        digest=b"n" * 32,
        display="sk-new",
        old_digest=before.digest,
        old_display=before.display,
        old_expires_at=START,
    )
    assert await tokens.update_token(database, rotated)
    assert await tokens.all_tokens(database) == [rotated]
    again = replace(rotated, digest=b"m" * 32, old_digest=rotated.digest)
    assert await tokens.update_token(database, again)


async def test_an_invalid_update_changes_nothing(database: Database) -> None:
    await tokens.add_token(database, whole(1))
    first, second = await tokens.all_tokens(database)
    with pytest.raises(UnknownGroup):
        await tokens.update_token(database, replace(first, group="nowhere"))
    for taken in (
        replace(first, digest=second.digest),
        replace(first, digest=second.old_digest or b""),
        replace(first, old_digest=second.digest),
        replace(first, old_digest=second.old_digest),
    ):
        with pytest.raises(TokenExists):
            await tokens.update_token(database, taken)
    assert not await tokens.update_token(database, token(7))
    assert await tokens.all_tokens(database) == [first, second]


async def test_first_use_and_last_change(database: Database) -> None:
    await tokens.add_token(database, token(1))
    await tokens.record_origin(database, "tok_0", first=(10, None, "client/1.0"))
    await tokens.record_origin(database, "tok_0", first=(9, "192.0.2.1", None), changed=(9, "one"))
    await tokens.record_origin(database, "tok_0", changed=(12, "two"))
    await tokens.record_origin(database, "tok_unknown", first=(1, None, None), changed=(1, "x"))
    noted, other = await tokens.all_tokens(database)
    assert (noted.first_used_at, noted.first_address, noted.first_agent) == (10, None, "client/1.0")
    assert (noted.changed_at, noted.changed) == (12, "two")
    assert other.first_used_at is other.changed_at is None


async def test_a_group_has_its_choices_back_as_they_are(database: Database) -> None:
    """Not as texts that only look like them: they are compared by identity."""
    group = Group(
        "team",
        ("*",),
        START,
        user_agent_mode=UserAgentMode.OBSERVE,
        store_replies=False,
        on_shared_loss=OnSharedLoss.REFUSE,
    )
    await tokens.put_group(database, group)
    (found,) = [each for each in await tokens.all_groups(database) if each.name == "team"]
    assert found == group
    assert found.user_agent_mode is UserAgentMode.OBSERVE
    assert found.on_shared_loss is OnSharedLoss.REFUSE
