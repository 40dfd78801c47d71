"""The forms of keys: minted, changed, rotated, imported.

This room must not know HTTP, nor whether what is named exists. Null clears what may be absent; a
field that is not there stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from gateway.admin.fields import (
    Addresses,
    Agents,
    Budget,
    Count,
    GroupName,
    Key,
    KeyName,
    Moment,
    Note,
    Patterns,
)
from gateway.admin.forms import Form, FormError, Mistake, fill
from gateway.admin.refusals import Slip
from gateway.admin.terms import KeyChanges, KeyTerms, LimitChanges, Wish
from gateway.store.records import TokenState

LONGEST_IMPORT = 200
"""Keys of one call."""

_LONGEST_OVERLAP_S = 366 * 86_400


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


class _Terms(Form):
    note: Note | None = None
    expires_at: Moment | None = None
    probe: bool = False
    models: Patterns | None = None
    addresses: Addresses | None = None
    user_agents: Agents | None = None
    limits: LimitsForm | None = None

    def terms(self) -> KeyTerms:
        """Those that the form names."""
        return cast(KeyTerms, stated(self, KeyTerms.__optional_keys__))


class MintForm(_Terms):
    """A new key. `name` is for people and need not be unique."""

    name: KeyName
    group: GroupName = "default"

    def wish(self) -> Wish:
        return Wish(self.name, self.group, terms=self.terms())


class ImportedForm(MintForm):
    """A key among many; with `key` one that exists already and is taken over."""

    key: Key | None = None

    def wish(self) -> Wish:
        return Wish(self.name, self.group, self.key, self.terms())


class ImportForm(Form):
    """Many keys, all of which are made or none. `keys` are filled one by one: see `read_keys`."""

    keys: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=LONGEST_IMPORT)]
    dry_run: bool = False


class ChangeForm(_Terms):
    """What is to be another in a key."""

    name: KeyName = Field(default="")
    group: GroupName = Field(default="")
    state: Literal[TokenState.ACTIVE, TokenState.DISABLED] = TokenState.ACTIVE

    def changes(self) -> KeyChanges:
        return cast(KeyChanges, stated(self, KeyChanges.__optional_keys__))


class RotateForm(Form):
    """`overlap_s` is for how many seconds the key of before stays good."""

    overlap_s: Annotated[int, Field(ge=0, le=_LONGEST_OVERLAP_S)]


def read_keys(rows: list[dict[str, Any]]) -> tuple[list[Wish], list[Slip]]:
    """The keys that are wished for, and what is wrong with any of them.

    Of a row with mistakes the rest is read too, so that whoever goes on finds all of them at once.
    """
    wishes: list[Wish] = []
    slips: list[Slip] = []
    for index, row in enumerate(rows):
        try:
            wishes.append(fill(ImportedForm, row).wish())
        except FormError as error:
            slips += (_slip(index, mistake) for mistake in error.mistakes)
            wrong = {mistake.path[0] for mistake in error.mistakes}
            rest = {"name": "x"} | {k: v for k, v in row.items() if k not in wrong}
            wishes.append(fill(ImportedForm, rest).wish())
    return wishes, slips


def _slip(index: int, mistake: Mistake) -> Slip:
    return Slip(index, ".".join(str(step) for step in mistake.path), mistake.message)


def stated(form: Form, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that whoever filled the form has named."""
    fields = {name: getattr(form, name) for name in names if name in form.model_fields_set}
    return {name: _frozen(value) for name, value in fields.items()}


def _frozen(value: Any) -> Any:
    """As a record has it."""
    if isinstance(value, LimitsForm):
        return value.changes()
    return tuple(value) if isinstance(value, list) else value
