"""What may be asked of the desk, checked: every field that is wrong is named, at once.

This room must not know HTTP, nor whether what is named exists. Forms of keys and groups have files
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gateway.admin.desk import Page
from gateway.admin.fields import GroupName, WrittenMoment
from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from gateway.store.usage import Dimension

_PAGE_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Mistake:
    """`path` leads to the field, from the form inwards; it is empty where all of it is wrong."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        path = ".".join(str(step) for step in self.path)
        return f"{path}: {self.message}" if path else self.message


class FormError(Exception):
    """The form is wrong; the message names every field and what is wrong with it."""

    def __init__(self, *mistakes: Mistake) -> None:
        super().__init__("; ".join(str(mistake) for mistake in mistakes))
        self.mistakes = mistakes


class Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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


def _listed(text: Any) -> Any:
    return text.split(",") if isinstance(text, str) else text


class UsageForm(Form):
    """The query of what was used: by which dimensions, in this order, and of what.

    Times are Unix microseconds; each means the beginning of the hour that it is in, so that spans
    which meet have no hour in common.
    """

    by: Annotated[tuple[Dimension, ...], BeforeValidator(_listed)] = (Dimension.KEY,)
    since: WrittenMoment | None = None
    until: WrittenMoment | None = None
    key: str | None = None
    group: str | None = None
    model: str | None = None


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
        raise FormError(Mistake((), "The body must be a JSON object."))
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        mistakes = error.errors(include_input=False, include_context=False, include_url=False)
        raise FormError(*(Mistake(each["loc"], each["msg"]) for each in mistakes)) from None
