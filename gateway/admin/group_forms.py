"""The forms of groups: added, changed.

This room must not know HTTP, nor what a pattern matches. Null clears what may be absent; a field
that is not there stays as it is.
"""

from __future__ import annotations

from typing import cast

from gateway.admin.fields import UserAgents, GroupName, Multiplier, ModelPatterns
from gateway.admin.forms import Form
from gateway.admin.key_forms import LimitsForm, set_fields
from gateway.admin.terms import GroupSettings
from gateway.store.records import UserAgentMode


class _GroupSettingsForm(Form):
    multiplier: Multiplier = "1"
    limits: LimitsForm | None = None
    user_agents: UserAgents | None = None
    user_agent_mode: UserAgentMode = UserAgentMode.ENFORCE

    def settings(self) -> GroupSettings:
        """Those that the form names."""
        return cast(GroupSettings, set_fields(self, GroupSettings.__optional_keys__))


class CreateGroupForm(_GroupSettingsForm):
    """A new group; `patterns` are globs over model ids, or `family:NAME`."""

    name: GroupName
    patterns: ModelPatterns


class UpdateGroupForm(_GroupSettingsForm):
    """What is to be another in a group."""

    patterns: ModelPatterns | None = None
