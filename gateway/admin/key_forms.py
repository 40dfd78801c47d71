"""The forms of keys: minted, changed, rotated, imported.

This room must not know HTTP, nor whether what is named exists. Null clears what may be absent; a
field that is not there stays as it is.

The forms of groups: added, changed.

This room must not know HTTP, nor what a pattern matches. Null clears what may be absent; a field
that is not there stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from gateway.admin.errors import ImportRowError
from gateway.admin.field_types import (
    Budget,
    Count,
    ExistingKey,
    GroupName,
    KeyName,
    ModelPatterns,
    Multiplier,
    Networks,
    Note,
    Timestamp,
    UserAgents,
)
from gateway.admin.forms import FieldError, Form, FormError, validate
from gateway.admin.key_settings import (
    GroupSettings,
    KeyChanges,
    KeyRequest,
    KeySettings,
    LimitChanges,
)
from gateway.store.records import TokenState, UserAgentMode

MAX_IMPORT = 200
"""Keys of one call."""

_MAX_OVERLAP_SECONDS = 366 * 86_400


class LimitsForm(Form):
    """Limits as in `gateway.core.limits`; null is no limit."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    concurrent: Count | None = None
    budget: Budget | None = None
    budget_day: Budget | None = None
    budget_month: Budget | None = None

    def changes(self) -> LimitChanges:
        return self.model_dump(exclude_unset=True)


class _KeySettingsForm(Form):
    note: Note | None = None
    expires_at: Timestamp | None = None
    probe: bool = False
    models: ModelPatterns | None = None
    addresses: Networks | None = None
    user_agents: UserAgents | None = None
    limits: LimitsForm | None = None

    def settings(self) -> KeySettings:
        """Those that the form names."""
        return cast(KeySettings, set_fields(self, KeySettings.__optional_keys__))


class CreateKeyForm(_KeySettingsForm):
    """A new key. `name` is for people and need not be unique."""

    name: KeyName
    group: GroupName = "default"

    def to_request(self) -> KeyRequest:
        return KeyRequest(self.name, self.group, settings=self.settings())


class ImportedKeyForm(CreateKeyForm):
    """A key among many; with `key` one that exists already and is taken over."""

    key: ExistingKey | None = None

    def to_request(self) -> KeyRequest:
        return KeyRequest(self.name, self.group, self.key, self.settings())


class ImportKeysForm(Form):
    """Many keys, all of which are made or none. `keys` are filled one by one: see `read_keys`."""

    keys: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_IMPORT)]
    dry_run: bool = False


class UpdateKeyForm(_KeySettingsForm):
    """What is to be another in a key."""

    name: KeyName = Field(default="")
    group: GroupName = Field(default="")
    state: Literal[TokenState.ACTIVE, TokenState.DISABLED] = TokenState.ACTIVE

    def changes(self) -> KeyChanges:
        return cast(KeyChanges, set_fields(self, KeyChanges.__optional_keys__))


class RotateKeyForm(Form):
    """`overlap_s` is for how many seconds the key of before stays good."""

    overlap_s: Annotated[int, Field(ge=0, le=_MAX_OVERLAP_SECONDS)]


def validate_import(rows: list[dict[str, Any]]) -> tuple[list[KeyRequest], list[ImportRowError]]:
    """The keys that are wished for, and what is wrong with any of them.

    Of a row with mistakes the rest is read too, so that whoever goes on finds all of them at once.
    """
    wishes: list[KeyRequest] = []
    slips: list[ImportRowError] = []
    for index, row in enumerate(rows):
        try:
            wishes.append(validate(ImportedKeyForm, row).to_request())
        except FormError as error:
            slips += (_row_error(index, mistake) for mistake in error.field_errors)
            wrong = {mistake.path[0] for mistake in error.field_errors}
            rest = {"name": "x"} | {k: v for k, v in row.items() if k not in wrong}
            wishes.append(validate(ImportedKeyForm, rest).to_request())
    return wishes, slips


def _row_error(index: int, mistake: FieldError) -> ImportRowError:
    return ImportRowError(index, ".".join(str(step) for step in mistake.path), mistake.message)


def set_fields(form: Form, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that whoever filled the form has named."""
    fields = {name: getattr(form, name) for name in names if name in form.model_fields_set}
    return {name: _as_stored(value) for name, value in fields.items()}


def _as_stored(value: Any) -> Any:
    """As a record has it."""
    if isinstance(value, LimitsForm):
        return value.changes()
    return tuple(value) if isinstance(value, list) else value


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
