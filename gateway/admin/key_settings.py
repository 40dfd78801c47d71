"""What an operator may say of a key or a group, by the names of their records' fields.

It must not know who checks it, nor what becomes of it. Times are Unix microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypedDict

from gateway.core.limits import UNLIMITED, Limits
from gateway.store.records import TokenState, UserAgentMode

LimitChanges = Mapping[str, int | None]
"""Limits by their names (`gateway.core.limits.LIMITS`); one that is not named stays."""


class KeySettings(TypedDict, total=False):
    """What may be said of a key besides its name and group; `limits` None takes all away."""

    note: str | None
    expires_at: int | None
    probe: bool
    models: tuple[str, ...] | None
    addresses: tuple[str, ...] | None
    user_agents: tuple[str, ...] | None
    limits: LimitChanges | None


class KeyChanges(KeySettings, total=False):
    """What may be changed of a key; what is absent stays."""

    name: str
    group: str
    state: TokenState


class GroupSettings(TypedDict, total=False):
    """What may be said of a group besides its name and patterns."""

    multiplier: str
    limits: LimitChanges | None
    user_agents: tuple[str, ...] | None
    user_agent_mode: UserAgentMode


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A key to be made, or, where `key` is given, to be taken over."""

    name: str
    group: str
    key: str | None = field(default=None, repr=False)
    settings: KeySettings = field(default_factory=KeySettings)


def merge_limits(limits: Limits, changes: LimitChanges | None) -> Limits:
    """The limits as changed."""
    return UNLIMITED if changes is None else replace(limits, **changes)
