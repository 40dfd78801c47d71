"""Groups: put, changed, removed, and kept while a token needs them."""

from __future__ import annotations

import pytest

from gateway.store import groups, tokens
from gateway.store.database import Database
from gateway.store.errors import GroupInUse
from gateway.store.records import Group
from tests.store.ledger import token


async def test_putting_adds_then_changes_the_patterns_only(database: Database) -> None:
    await groups.put_group(database, Group("beta", ("beta-*",), 5))
    await groups.put_group(database, Group("beta", ("beta-*", "family:beta"), 9))
    beta, default = await groups.all_groups(database)
    assert beta == Group("beta", ("beta-*", "family:beta"), 5)
    assert default.patterns == ("*",)


async def test_a_group_stays_while_a_token_names_it(database: Database) -> None:
    await groups.put_group(database, Group("beta", ("beta-*",), 5))
    await tokens.add_token(database, token(1, group="beta"))
    await tokens.revoke_token(database, "tok_1", 9)
    with pytest.raises(GroupInUse, match="'beta'"):
        await groups.remove_group(database, "beta")
    await groups.put_group(database, Group("gamma", (), 6))
    assert await groups.remove_group(database, "gamma")
    assert not await groups.remove_group(database, "gamma")
