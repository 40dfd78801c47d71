"""Text input of the console: the forms of keys and groups, and the filters of the logs page.

Texts have the names of their inputs, which are those of the records' fields in forms. Times are
Unix microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from gateway.admin.api.forms import Form, LogFilterForm, validate
from gateway.admin.errors import FieldError, FormError
from gateway.admin.text_fields import format_fields, parse_field
from gateway.admin.units import parse_duration, parse_time, parse_usd
from gateway.core.limits import DIMENSION_BUDGETS, LIMIT_NAMES
from gateway.store.log.pages import LogFilter
from gateway.store.records import Group, Token

Texts = Mapping[str, str]

F = TypeVar("F", bound=Form)

_KEY_FIELDS: Final = (
    *("name", "group", "note", "expires_at"),
    *("probe", "cost_in_usage", "models", "addresses", "user_agents", "trust"),
    *DIMENSION_BUDGETS,
)
_GROUP_FIELDS: Final = (
    *("name", "patterns", "multiplier", "user_agents"),
    *("user_agent_mode", "store_replies", "on_shared_loss"),
)
_FIELDS: Final = (*dict.fromkeys((*_KEY_FIELDS, *_GROUP_FIELDS)), *LIMIT_NAMES)


def parse_form(form: type[F], texts: Texts, displayed: Texts, now: int) -> F:
    """The form with the texts that differ from the displayed ones. Raises FormError."""
    fields: dict[str, Any] = {}
    limits: dict[str, int | None] = {}
    errors: list[FieldError] = []
    for name in _FIELDS:
        text = texts.get(name, "").replace("\r\n", "\n").strip()
        if text == displayed.get(name, ""):
            continue
        try:
            (limits if name in LIMIT_NAMES else fields)[name] = parse_field(name, text, now)
        except ValueError as error:
            errors.append(FieldError((name,), str(error)))
    if limits:
        fields["limits"] = limits
    try:
        filled = validate(form, fields)
    except FormError as error:
        raise FormError(*errors, *error.field_errors) from None
    if errors:
        raise FormError(*errors)
    return filled


def parse_overlap(text: str) -> int:
    """Reads an overlap in seconds. Raises FormError."""
    try:
        return parse_duration(text.strip())
    except ValueError as error:
        raise FormError(FieldError(("overlap",), str(error))) from None


def key_to_texts(token: Token) -> dict[str, str]:
    """The texts of a form that shows the token."""
    return format_fields(token, _KEY_FIELDS) | format_fields(token.limits, LIMIT_NAMES)


def group_to_texts(group: Group) -> dict[str, str]:
    """The texts of a form that shows the group."""
    return format_fields(group, _GROUP_FIELDS) | format_fields(group.limits, LIMIT_NAMES)


def error_messages(error: FormError) -> dict[str, str]:
    """The first error of each field as a sentence; limits have names of their own."""
    messages: dict[str, str] = {}
    for field_error in error.field_errors:
        path = field_error.path[1:] if field_error.path[:1] == ("limits",) else field_error.path
        name, *rest = path or field_error.path or ("",)
        item = next((f"Number {step + 1}: " for step in rest if isinstance(step, int)), "")
        messages.setdefault(str(name), item + _sentence(field_error.message))
    return messages


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".") + "."


FILTER_FIELDS: Final = {
    "since": "since",
    "until": "until",
    "key": "token_id",
    "group": "group_name",
    "model": "model",
    "channel": "channel",
    "account": "account",
    "outcome": "outcome",
    "state": "state",
    "status": "status",
    "code": "error_code",
    "attempts": "min_attempts",
    "ttft": "min_first_event_us",
    "usd": "min_usd_micro",
    "id": "id",
    "text": "text",
}
"""Input of the logs page → field of the filter form."""

_MAX_LISTED_KEYS: Final = 5
MAX_NAMESAKES: Final = _MAX_LISTED_KEYS + 1
"""Keys of one name that have to be read to say that there are several."""


@dataclass(frozen=True, slots=True)
class LogSearch:
    """`texts` are the inputs that are not empty, `api_fields` the same filter for the admin API.
    With `errors`, sentences by input, the filter is invalid."""

    texts: Texts
    api_fields: Mapping[str, Any]
    log_filter: LogFilter
    errors: Texts

    def query(self, **changes: str | None) -> str:
        """The query string of the page with other texts; None removes one."""
        texts = {**self.texts, **changes}
        return urlencode({name: text for name, text in texts.items() if text is not None})

    def prefix(self, name: str) -> str:
        """The query string that ends with this input, so that a text completes it."""
        rest = self.query(**{name: None})
        return f"{rest}&{name}=" if rest else f"{name}="

    def api_query(self, **more: str) -> str:
        """The query string of the admin API."""
        return urlencode({**self.api_fields, **more})


def parse_search(query: Mapping[str, str], tokens: Sequence[Token], now: int) -> LogSearch:
    """Durations count back from `now`; `tokens` are those with the name that is sought."""
    texts = {name: text for name in FILTER_FIELDS if (text := query.get(name, "").strip())}
    fields: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, text in texts.items():
        try:
            fields[FILTER_FIELDS[name]] = _parse_filter(name, text, tokens, now)
        except ValueError as error:
            errors[name] = _sentence(str(error))
    log_filter = LogFilter()
    try:
        log_filter = validate(LogFilterForm, fields).to_filter()
    except FormError as error:
        inputs = {field: name for name, field in FILTER_FIELDS.items()}
        errors |= {inputs[field]: text for field, text in error_messages(error).items()}
    return LogSearch(texts, fields, log_filter, errors)


def _parse_filter(name: str, text: str, tokens: Sequence[Token], now: int) -> str | int:
    if name in ("since", "until"):
        return parse_time(text, now, -1)
    if name == "ttft":
        return parse_duration(text) * 1_000_000
    if name == "usd":
        return parse_usd(text)
    return _token_id(text, tokens) if name == "key" else text


def _token_id(text: str, tokens: Sequence[Token]) -> str:
    """Finds a key's id from an id or a name; the id of a deleted key still has rows."""
    if text.startswith("tok_"):
        return text
    ids = [token.id for token in tokens if token.name == text]
    if not ids:
        raise ValueError("no key has this name")
    if len(ids) > 1:
        more = " …" if len(ids) > _MAX_LISTED_KEYS else ""
        raise ValueError(f"several keys have this name: {', '.join(ids[:_MAX_LISTED_KEYS])}{more}")
    return ids[0]
