"""Bodies of the admin API for keys and groups, and their settings as operations take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, replace
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar, cast

from pydantic import Field

from gateway.admin.api.field_types import (
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
    TrustedDimensions,
    UserAgents,
)
from gateway.admin.api.forms import Form, validate
from gateway.admin.errors import FormError, ImportRowError
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
"""Changes by the names of `gateway.core.limits.Limits`; absent ones stay, None is no limit."""

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
    cost_in_usage: bool
    models: tuple[str, ...] | None
    addresses: tuple[str, ...] | None
    user_agents: tuple[str, ...] | None
    trust: tuple[str, ...] | None
    limits: LimitChanges | None
    budget_day_per_user: int | None
    budget_usd_day_per_user: int | None
    budget_day_per_session: int | None
    budget_usd_day_per_session: int | None


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


MAX_IMPORT = 200
"""Keys per call."""

_MAX_OVERLAP_SECONDS = 366 * 86_400


class LimitsForm(Form):
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    concurrent: Count | None = None
    budget: Budget | None = None
    budget_5h: Budget | None = None
    budget_day: Budget | None = None
    budget_week: Budget | None = None
    budget_month: Budget | None = None
    budget_usd: Budget | None = None
    budget_usd_5h: Budget | None = None
    budget_usd_day: Budget | None = None
    budget_usd_week: Budget | None = None
    budget_usd_month: Budget | None = None


class _KeySettingsForm(Form):
    note: Note | None = None
    expires_at: Timestamp | None = None
    probe: bool = False
    cost_in_usage: bool = False
    models: ModelPatterns | None = None
    addresses: Networks | None = None
    user_agents: UserAgents | None = None
    trust: TrustedDimensions | None = None
    limits: LimitsForm | None = None
    budget_day_per_user: Budget | None = None
    budget_usd_day_per_user: Budget | None = None
    budget_day_per_session: Budget | None = None
    budget_usd_day_per_session: Budget | None = None


class CreateKeyForm(_KeySettingsForm):
    """`name` is for people and need not be unique."""

    name: KeyName
    group: GroupName = "default"

    def settings(self) -> KeySettings:
        """The settings that are present."""
        return cast(KeySettings, _present(self, {"name", "group", "key"}))


class ImportedKeyForm(CreateKeyForm):
    """A key to create; with `key`, one that clients already use is imported."""

    key: Annotated[ExistingKey | None, Field(repr=False)] = None


class ImportKeysForm(Form):
    """Keys of which all are created or none. They are validated one by one by `validate_import`."""

    keys: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_IMPORT)]
    dry_run: bool = False


class UpdateKeyForm(_KeySettingsForm):
    name: KeyName = ""
    group: GroupName = ""
    state: Literal[TokenState.ACTIVE, TokenState.DISABLED] = TokenState.ACTIVE
    let_run: bool = False

    def changes(self) -> KeyChanges:
        return cast(KeyChanges, _present(self))


class RevokeKeyForm(Form):
    let_run: bool = False


class RotateKeyForm(Form):
    """The current key stays valid for `overlap_s` seconds."""

    overlap_s: Annotated[int, Field(ge=0, le=_MAX_OVERLAP_SECONDS)]


class _GroupSettingsForm(Form):
    multiplier: Multiplier = "1"
    limits: LimitsForm | None = None
    user_agents: UserAgents | None = None
    user_agent_mode: UserAgentMode = UserAgentMode.ENFORCE
    store_replies: bool = True
    on_shared_loss: OnSharedLoss = OnSharedLoss.SHARE

    def settings(self) -> GroupSettings:
        """The settings that are present."""
        return cast(GroupSettings, _present(self, {"name", "patterns"}))


class CreateGroupForm(_GroupSettingsForm):
    """`patterns` are globs over model ids, or `family:NAME`."""

    name: GroupName
    patterns: ModelPatterns


class UpdateGroupForm(_GroupSettingsForm):
    patterns: ModelPatterns | None = None


def _present(form: Form, excluded: Set[str] = frozenset()) -> dict[str, Any]:
    """The fields that are present, lists as tuples."""
    fields = form.model_dump(exclude_unset=True, exclude=set(excluded))
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }


def validate_import(
    rows: Sequence[dict[str, Any]],
) -> tuple[list[ImportedKeyForm], list[ImportRowError]]:
    """The keys, and every invalid field. A row with invalid fields is represented by its valid
    ones, so that later checks of the whole list still find everything else."""
    forms: list[ImportedKeyForm] = []
    errors: list[ImportRowError] = []
    for index, row in enumerate(rows):
        try:
            forms.append(validate(ImportedKeyForm, row))
        except FormError as error:
            for each in error.field_errors:
                errors.append(ImportRowError(index, ".".join(map(str, each.path)), each.message))
            invalid = {each.path[0] for each in error.field_errors}
            valid = {name: value for name, value in row.items() if name not in invalid}
            forms.append(validate(ImportedKeyForm, {"name": "x"} | valid))
    return forms, errors
