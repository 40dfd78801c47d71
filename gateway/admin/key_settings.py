"""Settings of keys and groups as operations take them, named like the fields of their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final, TypedDict, TypeVar

from gateway.core.limits import UNLIMITED
from gateway.store.records import (
    TOKEN_TOTALS,
    Group,
    OnSharedLoss,
    Token,
    TokenState,
    UserAgentMode,
)

LimitChanges = Mapping[str, int | None]
"""By the names of `gateway.core.limits.Limits`; absent ones stay, None is no limit."""

R = TypeVar("R", Token, Group)

_NOT_AUDITED: Final = frozenset(
    {
        *("id", "digest", "old_digest", "old_display", "created_at", "last_used_at"),
        *("first_used_at", "first_address", "first_agent", "changed_at", "changed"),
        *TOKEN_TOTALS,
    }
)


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
    let_run: bool


class GroupSettings(TypedDict, total=False):
    multiplier: str
    limits: LimitChanges | None
    user_agents: tuple[str, ...] | None
    user_agent_mode: UserAgentMode
    store_replies: bool
    on_shared_loss: OnSharedLoss


def apply_settings(record: R, settings: KeyChanges | KeySettings | GroupSettings) -> R:
    """The record with these settings; absent ones stay as they are."""
    fields: dict[str, Any] = {**settings}
    if "limits" in fields:
        changes = fields["limits"]
        fields["limits"] = UNLIMITED if changes is None else replace(record.limits, **changes)
    return replace(record, **fields)


def record_fields(record: Token | Group) -> dict[str, Any]:
    """Returns what the audit log compares: what an operator sets, without secrets and their
    digests."""
    fields = {name: field for name, field in asdict(record).items() if name not in _NOT_AUDITED}
    limits = fields.pop("limits")
    return {name: field for name, field in (fields | limits).items() if field is not None}


def key_label(token: Token) -> str:
    return f"{token.name} ({token.id})"
