"""What may be asked of the desk, checked: every field that is wrong is named, at once.

This room must not know HTTP, nor whether what is named exists. Forms of keys and groups have files
of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from gateway.admin.export import ExportFormat
from gateway.admin.field_types import GroupName, QueryTimestamp
from gateway.admin.operations import LogPage
from gateway.core.formats import Format
from gateway.store.logs import LogFilter
from gateway.store.records import ExchangeState
from gateway.store.usage import Dimension

_PAGE_LIMIT = 1000
_STATUS: Final = re.compile(r"[1-5](\d\d|xx)", re.ASCII)


@dataclass(frozen=True, slots=True)
class FieldError:
    """`path` leads to the field, from the form inwards; it is empty where all of it is wrong."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        path = ".".join(str(step) for step in self.path)
        return f"{path}: {self.message}" if path else self.message


class FormError(Exception):
    """The form is wrong; the message names every field and what is wrong with it."""

    def __init__(self, *mistakes: FieldError) -> None:
        super().__init__("; ".join(str(mistake) for mistake in mistakes))
        self.field_errors = mistakes


class Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _parse_status(text: Any) -> range | None:
    if text is None:
        return None
    if not isinstance(text, str) or not _STATUS.fullmatch(text):
        raise PydanticCustomError("status", "must be a status such as 503 or a class such as 5xx")
    if text.endswith("xx"):
        return range(int(text[0]) * 100, int(text[0]) * 100 + 100)
    return range(int(text), int(text) + 1)


StatusRange = Annotated[Any, BeforeValidator(_parse_status)]
"""One status, or a class of them (`5xx`), as a range."""


class LogFilterForm(Form):
    """The query of rows; see `Wanted` for what its fields mean. Times are Unix microseconds."""

    since: QueryTimestamp | None = None
    until: QueryTimestamp | None = None
    id: str | None = None
    token_id: str | None = None
    group_name: str | None = None
    model: str | None = None
    channel: str | None = None
    account: str | None = None
    state: ExchangeState | None = None
    status: StatusRange = None
    error_code: str | None = None
    text: str | None = None

    def to_filter(self) -> LogFilter:
        return LogFilter(**{name: getattr(self, name) for name in LogFilterForm.model_fields})


class LogPageForm(LogFilterForm):
    """The query of a page of the ledger; see `Page`."""

    limit: int = Field(default=50, ge=1, le=_PAGE_LIMIT)
    before: str | None = None
    after: str | None = None

    def to_page(self) -> LogPage:
        return LogPage(**dict(self))


class ExportForm(LogFilterForm):
    """The query of all rows that are wanted."""

    format: ExportFormat = ExportFormat.JSONL


class FeedForm(LogFilterForm):
    """The query of requests as they end; with `opened` also as they begin."""

    opened: bool = False


class OverviewForm(Form):
    """The query of an overview; without `until` up to now."""

    since: QueryTimestamp
    until: QueryTimestamp | None = None


def _split_list(text: Any) -> Any:
    return text.split(",") if isinstance(text, str) else text


class UsageForm(Form):
    """The query of what was used: by which dimensions, in this order, and of what.

    Times are Unix microseconds; each means the beginning of the hour that it is in, so that spans
    which meet have no hour in common.
    """

    by: Annotated[tuple[Dimension, ...], BeforeValidator(_split_list)] = (Dimension.KEY,)
    since: QueryTimestamp | None = None
    until: QueryTimestamp | None = None
    key: str | None = None
    group: str | None = None
    model: str | None = None


class ProbeForm(Form):
    """The query of a try: without a model the channel's first is asked for."""

    model: str | None = None


class RouteForm(Form):
    """The query of a forecast; without a group every model is reached."""

    group: GroupName | None = None
    model: str
    format: Format


F = TypeVar("F", bound=Form)


def validate(form: type[F], fields: Any) -> F:
    """The form filled with what came over the wire. Raises FormError."""
    if not isinstance(fields, dict):
        raise FormError(FieldError((), "The body must be a JSON object."))
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        mistakes = error.errors(include_input=False, include_context=False, include_url=False)
        raise FormError(*(FieldError(each["loc"], each["msg"]) for each in mistakes)) from None
