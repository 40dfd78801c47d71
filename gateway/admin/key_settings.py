"""Settings of keys and groups as operations take them, named like the fields of their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar

from gateway.core.limits import UNLIMITED
from gateway.store.records import Group, Token, TokenState, UserAgentMode

LimitChanges = Mapping[str, int | None]
"""By the names of `gateway.core.limits.Limits`; absent ones stay, None is no limit."""

R = TypeVar("R", Token, Group)


class KeySettings(TypedDict, total=False):
    """`limits` None removes all limits. Times are Unix microseconds."""

    note: str | None
    expires_at: int | None
    probe: bool
    models: tuple[str, ...] | None
    addresses: tuple[str, ...] | None
    user_agents: tuple[str, ...] | None
    limits: LimitChanges | None


class KeyChanges(KeySettings, total=False):
    name: str
    group: str
    state: TokenState


class GroupSettings(TypedDict, total=False):
    multiplier: str
    limits: LimitChanges | None
    user_agents: tuple[str, ...] | None
    user_agent_mode: UserAgentMode
    store_replies: bool


def apply_settings(record: R, settings: KeyChanges | KeySettings | GroupSettings) -> R:
    """The record with these settings; absent ones stay as they are."""
    fields: dict[str, Any] = {**settings}
    if "limits" in fields:
        changes = fields["limits"]
        fields["limits"] = UNLIMITED if changes is None else replace(record.limits, **changes)
    return replace(record, **fields)
