"""The forms of groups: added, changed.

This room must not know HTTP, nor what a pattern matches. Null clears what may be absent; a field
that is not there stays as it is.
"""

from __future__ import annotations

from typing import cast

from gateway.admin.fields import Agents, GroupName, Multiplier, Patterns
from gateway.admin.forms import Form
from gateway.admin.key_forms import LimitsForm, stated
from gateway.admin.terms import GroupTerms
from gateway.store.records import AgentMode


class _Terms(Form):
    multiplier: Multiplier = "1"
    limits: LimitsForm | None = None
    user_agents: Agents | None = None
    user_agent_mode: AgentMode = AgentMode.ENFORCE

    def terms(self) -> GroupTerms:
        """Those that the form names."""
        return cast(GroupTerms, stated(self, GroupTerms.__optional_keys__))


class GroupForm(_Terms):
    """A new group; `patterns` are globs over model ids, or `family:NAME`."""

    name: GroupName
    patterns: Patterns


class GroupChange(_Terms):
    """What is to be another in a group."""

    patterns: Patterns | None = None
