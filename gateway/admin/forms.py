"""What may be asked of the desk, checked: every field that is wrong is named, at once.

This room must not know HTTP, nor whether what is named exists.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from gateway.admin.desk import Page
from gateway.core.formats import Family, Format
from gateway.store.records import ExchangeState

_PAGE_LIMIT = 1000
_FAMILY = "family:"


class FormError(Exception):
    """The form is wrong; the message names every field and what is wrong with it."""


def _printable(text: str) -> str:
    if text != text.strip():
        raise PydanticCustomError("blank", "must not begin or end with a blank")
    if not text.isprintable():
        raise PydanticCustomError("unprintable", "must not have control characters")
    return text


def _group_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise PydanticCustomError("group", "may have letters, digits, '.', '-' and '_' only")
    return name


def _pattern(pattern: str) -> str:
    if pattern.startswith(_FAMILY):
        family = pattern.removeprefix(_FAMILY)
        if family not in set(Family):
            raise PydanticCustomError("family", "must be family:alpha or family:beta")
    elif "," in pattern or any(character.isspace() for character in pattern):
        raise PydanticCustomError("pattern", "must be one id, glob (beta-*) or family:NAME")
    return pattern


KeyName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]
GroupName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_group_name)]
Pattern = Annotated[
    str,
    Field(min_length=1, max_length=200),
    AfterValidator(_printable),
    AfterValidator(_pattern),
]
Patterns = Annotated[list[Pattern], Field(min_length=1, max_length=1000)]


class Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MintForm(Form):
    """A new key. `name` is for people and need not be unique."""

    name: KeyName
    group: GroupName = "default"


class PatternsForm(Form):
    """What a group reaches: globs over model ids, or `family:NAME`."""

    patterns: Patterns


class GroupForm(PatternsForm):
    name: GroupName


class PageForm(Form):
    """The query of a page of the ledger; see `Page` for what its fields mean."""

    limit: int = Field(default=50, ge=1, le=_PAGE_LIMIT)
    before: str | None = None
    after: str | None = None
    token_id: str | None = None
    model: str | None = None
    state: ExchangeState | None = None
    status: int | None = Field(default=None, ge=100, le=599)

    def page(self) -> Page:
        return Page(**dict(self))


class TryForm(Form):
    """The query of a try: without a model the channel's first is asked for."""

    model: str | None = None


class RouteForm(Form):
    """The query of a forecast; without a group every model is reached."""

    group: GroupName | None = None
    model: str
    format: Format


F = TypeVar("F", bound=Form)


def fill(form: type[F], fields: Any) -> F:
    """The form filled with what came over the wire. Raises FormError."""
    if not isinstance(fields, dict):
        raise FormError("The body must be a JSON object.")
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        mistakes = error.errors(include_input=False, include_context=False, include_url=False)
        raise FormError("; ".join(_sentence(each) for each in mistakes)) from None


def _sentence(mistake: Any) -> str:
    path = ".".join(str(step) for step in mistake["loc"])
    return f"{path}: {mistake['msg']}" if path else str(mistake["msg"])
