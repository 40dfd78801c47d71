"""Queries and bodies of the admin API; an error names every invalid field at once."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from gateway.admin.api.export import ExportFormat
from gateway.admin.api.field_types import GroupName, QueryTimestamp
from gateway.admin.errors import FieldError, FormError
from gateway.core.formats import Format
from gateway.store.log.outcomes import Outcome
from gateway.store.log.pages import MAX_PAGE, LogFilter
from gateway.store.log.traffic_report import MAX_STEPS, STEPS, By, Step, TrafficQuery
from gateway.store.log.usage import Dimension
from gateway.store.records import DIMENSIONS, STEP_US, ExchangeState

_STATUS: Final = re.compile(r"[1-5](\d\d|xx)", re.ASCII)


class Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


F = TypeVar("F", bound=Form)


def validate(form: type[F], content: Any) -> F:
    """Raises FormError."""
    if not isinstance(content, dict):
        raise FormError(FieldError((), "The body must be a JSON object."))
    try:
        return form.model_validate(content)
    except ValidationError as error:
        errors = error.errors(include_input=False, include_context=False, include_url=False)
        raise FormError(*(FieldError(each["loc"], each["msg"]) for each in errors)) from None


def _parse_status(text: Any) -> range | None:
    if text is None:
        return None
    if not isinstance(text, str) or not _STATUS.fullmatch(text):
        raise PydanticCustomError("status", "must be a status such as 503 or a class such as 5xx")
    if text.endswith("xx"):
        return range(int(text[0]) * 100, int(text[0]) * 100 + 100)
    return range(int(text), int(text) + 1)


_Least = Annotated[int | None, Field(ge=0, le=2**53)]


class StatedForm(Form):
    """Filters by what requests state of themselves, `DIMENSIONS`."""

    end_user: str | None = None
    session: str | None = None
    agent: str | None = None
    tag: str | None = None

    def stated(self) -> dict[str, str]:
        values = {name: getattr(self, name) for name in DIMENSIONS}
        return {name: value for name, value in values.items() if value is not None}


class LogFilterForm(StatedForm):
    """The fields of `LogFilter`; `status` is one status or a class of them (`5xx`)."""

    since: QueryTimestamp | None = None
    until: QueryTimestamp | None = None
    id: str | None = None
    token_id: str | None = None
    group_name: str | None = None
    model: str | None = None
    channel: str | None = None
    account: str | None = None
    state: ExchangeState | None = None
    status: Annotated[Any, BeforeValidator(_parse_status)] = None
    error_code: str | None = None
    text: str | None = None
    outcome: Outcome | None = None
    min_attempts: _Least = None
    min_first_event_us: _Least = None
    min_usd_micro: _Least = None

    def to_filter(self) -> LogFilter:
        return LogFilter(**{field.name: getattr(self, field.name) for field in fields(LogFilter)})


class LogPageForm(LogFilterForm):
    """A page of the request log; `before` and `after` are ids."""

    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    before: str | None = None
    after: str | None = None


class CheckForm(Form):
    """Digests of the log's last links that were kept elsewhere, with commas between them."""

    head: Annotated[str, Field(pattern="^([0-9a-f]{64}(,[0-9a-f]{64})*)?$")] = ""

    @property
    def heads(self) -> list[str]:
        return [digest for digest in self.head.split(",") if digest]


class ExportForm(LogFilterForm):
    format: ExportFormat = ExportFormat.JSONL


class FeedForm(LogFilterForm):
    """Requests as they end; with `opened` also as they begin."""

    opened: bool = False


class OverviewForm(Form):
    """The period of an overview; without `until`, up to now."""

    since: QueryTimestamp
    until: QueryTimestamp | None = None


def _split_list(text: Any) -> Any:
    return text.split(",") if isinstance(text, str) else text


class UsageForm(StatedForm):
    """Usage by dimensions, in this order. `since` and `until` are Unix microseconds, rounded down
    to the hour, so that adjacent spans have no hour in common."""

    by: Annotated[tuple[Dimension, ...], BeforeValidator(_split_list)] = (Dimension.KEY,)
    since: QueryTimestamp | None = None
    until: QueryTimestamp | None = None
    key: str | None = None
    group: str | None = None
    model: str | None = None
    channel: str | None = None


class TrafficForm(Form):
    """Outcomes, tokens, costs and times of a span, in steps, by model or channel; without `step` of
    the whole span, without `until` up to now."""

    since: QueryTimestamp
    until: QueryTimestamp | None = None
    by: By | None = None
    step: Step | None = None
    model: str | None = None
    channel: str | None = None

    def to_query(self, now: int) -> TrafficQuery:
        """Raises FormError where the span has too many steps."""
        until = now + STEP_US if self.until is None else self.until
        step = None if self.step is None else STEPS[self.step]
        if step is not None and until - self.since > MAX_STEPS * step:
            raise FormError(FieldError(("step",), f"A span may have up to {MAX_STEPS} steps."))
        only = {"model": self.model, "channel": self.channel}
        return TrafficQuery(self.since, until, by=self.by, step=step, **only)


class RefusalsForm(Form):
    """A period, without `until` up to now, and a key."""

    since: QueryTimestamp
    until: QueryTimestamp | None = None
    key: str | None = None
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)


class ConfigForm(Form):
    """With `all`, options that have their default too."""

    all: bool = False


class WebhookForm(Form):
    """The webhook to test; without `webhook`, all."""

    webhook: str | None = None


class ProbeForm(Form):
    """The account and model to probe; without a model, the channel's first one is used."""

    model: str | None = None


class RouteForm(Form):
    """The request to preview; without a group, all models are allowed."""

    group: GroupName | None = None
    model: str
    format: Format
