"""Groups: put, changed, removed, and kept while a token needs them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.limits import UNLIMITED, Limits
from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import GroupInUse
from gateway.store.records import Group, TokenState, UserAgentMode
from tests.store.sample_rows import token


async def test_put_adds_a_group_or_changes_its_patterns(database: Database) -> None:
    await tokens.put_group(database, Group("beta", ("beta-*",), 5))
    await tokens.put_group(database, Group("beta", ("beta-*", "family:beta"), 9))
    beta, default = await tokens.all_groups(database)
    assert beta == Group("beta", ("beta-*", "family:beta"), 5)
    assert default.patterns == ("*",)


async def test_a_group_is_stored_completely(database: Database) -> None:
    group = Group(
        "beta",
        ("beta-*",),
        5,
        multiplier="0.1",
        limits=Limits(
            requests_per_minute=1,
            tokens_per_minute=2,
            concurrent=3,
            budget=4 * 10**15,
            budget_day=5,
            budget_month=0,
        ),
        user_agents=("client/", "re:^other"),
        user_agent_mode=UserAgentMode.OBSERVE,
    )
    await tokens.put_group(database, group)
    found, default = await tokens.all_groups(database)
    assert found == group
    assert isinstance(found.user_agent_mode, UserAgentMode)
    assert (default.limits, default.multiplier, default.user_agents) == (UNLIMITED, "1", None)
    await tokens.put_group(database, Group("beta", (), 9, user_agents=()))
    changed, _ = await tokens.all_groups(database)
    assert changed == Group("beta", (), 5, user_agents=())


async def test_a_group_with_tokens_is_not_removed(database: Database) -> None:
    await tokens.put_group(database, Group("beta", ("beta-*",), 5))
    revoked = replace(token(1, group="beta"), state=TokenState.REVOKED, revoked_at=9)
    await tokens.add_token(database, revoked)
    with pytest.raises(GroupInUse, match="'beta'"):
        await tokens.remove_group(database, "beta")
    await tokens.put_group(database, Group("gamma", (), 6))
    assert await tokens.remove_group(database, "gamma")
    assert not await tokens.remove_group(database, "gamma")
