"""Tokens: added, read back whole, revoked once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import TokenExists, UnknownGroup
from gateway.store.records import TokenState
from tests.store.ledger import token


async def test_a_token_comes_back_as_it_was_added(database: Database) -> None:
    added = token(1, name="x'; DROP TABLE tokens; --")
    await tokens.add_token(database, added)
    first, second = await tokens.all_tokens(database)
    assert first.id == "tok_0"
    assert second == added
    assert isinstance(second.state, TokenState)


async def test_revoking_happens_once(database: Database) -> None:
    assert await tokens.revoke_token(database, "tok_0", 123)
    assert not await tokens.revoke_token(database, "tok_0", 456)
    assert not await tokens.revoke_token(database, "tok_unknown", 456)
    (revoked,) = await tokens.all_tokens(database)
    assert (revoked.state, revoked.revoked_at) == (TokenState.REVOKED, 123)


async def test_unknown_groups_and_taken_keys_are_refused(database: Database) -> None:
    with pytest.raises(UnknownGroup):
        await tokens.add_token(database, token(1, group="nowhere"))
    (there,) = await tokens.all_tokens(database)
    for taken in (replace(there, id="tok_9"), replace(token(9), id=there.id)):
        with pytest.raises(TokenExists):
            await tokens.add_token(database, taken)
    assert await tokens.all_tokens(database) == [there]
