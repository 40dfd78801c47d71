"""What is typed into the forms of keys and groups: read into what the desk's forms take, and shown
as it would be typed. It must not know pages, nor whether what is named exists.

Texts go by the names of the records' fields (limits by `gateway.core.limits.LIMITS`); nothing at
all, `none` and `never` clear what may be absent. Times are Unix microseconds.

What is looked for on the logs page: texts that a person typed, read into what the desk's forms
take. It must not know pages, nor how the ledger is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from gateway.admin.errors import FormError
from gateway.admin.forms import Form, LogFilterForm, validate
from gateway.admin.text_fields import format_fields, parse_field
from gateway.admin.units import parse_duration, parse_time
from gateway.core.limits import LIMIT_NAMES
from gateway.store.logs import LogFilter
from gateway.store.records import Group, Token

Texts = Mapping[str, str]

F = TypeVar("F", bound=Form)

_KEY_FIELDS: Final = (
    *("name", "group", "note", "expires_at"),
    *("probe", "models", "addresses", "user_agents"),
)
_GROUP_FIELDS: Final = ("name", "patterns", "multiplier", "user_agents", "user_agent_mode")
_FIELDS: Final = (*dict.fromkeys((*_KEY_FIELDS, *_GROUP_FIELDS)), *LIMIT_NAMES)


class FormInputError(Exception):
    """`mistakes` has a sentence for each text that is wrong."""

    def __init__(self, errors: Texts) -> None:
        super().__init__("; ".join(f"{name}: {words}" for name, words in errors.items()))
        self.errors = errors


def parse_form(form: type[F], texts: Texts, shown: Texts, now: int) -> F:
    """The form filled with those texts that are not as they were shown. Raises Wrong."""
    fields: dict[str, Any] = {}
    limits: dict[str, int | None] = {}
    mistakes: dict[str, str] = {}
    for name in _FIELDS:
        text = texts.get(name, "").replace("\r\n", "\n").strip()
        if text == shown.get(name, ""):
            continue
        try:
            value = parse_field(name, text, now)
        except ValueError as error:
            mistakes[name] = _sentence(str(error))
            continue
        (limits if name in LIMIT_NAMES else fields)[name] = value
    if limits:
        fields["limits"] = limits
    try:
        filled = validate(form, fields)
    except FormError as error:
        for mistake in error.field_errors:
            name, words = _locate(mistake.path, mistake.message)
            mistakes.setdefault(name, words)
        raise FormInputError(mistakes) from None
    if mistakes:
        raise FormInputError(mistakes)
    return filled


def parse_overlap(text: str) -> int:
    """Seconds. Raises Wrong."""
    try:
        return parse_duration(text.strip())
    except ValueError as error:
        raise FormInputError({"overlap": _sentence(str(error))}) from None


def key_to_texts(token: Token) -> dict[str, str]:
    """The texts of a form that shows the token."""
    return format_fields(token, _KEY_FIELDS) | format_fields(token.limits, LIMIT_NAMES)


def group_to_texts(group: Group) -> dict[str, str]:
    """The texts of a form that shows the group."""
    return format_fields(group, _GROUP_FIELDS) | format_fields(group.limits, LIMIT_NAMES)


def _locate(path: tuple[str | int, ...], message: str) -> tuple[str, str]:
    """The name of the text that a mistake of the form is in, and the sentence for it."""
    name = str(path[1] if path[:1] == ("limits",) and len(path) > 1 else path[0] if path else "")
    numbers = [step for step in path[1:] if isinstance(step, int)]
    which = f"Number {numbers[0] + 1}: " if numbers else ""
    return name, which + _sentence(message)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:].removesuffix(".") + "."


FILTER_FIELDS: Final = {
    "since": "since",
    "until": "until",
    "key": "token_id",
    "group": "group_name",
    "model": "model",
    "channel": "channel",
    "account": "account",
    "state": "state",
    "status": "status",
    "code": "error_code",
    "id": "id",
    "text": "text",
}
"""The name of a text → the field of the desk's form that it fills."""

_MOMENTS: Final = ("since", "until")
_CHOICES: Final = 5  # keys that are named to whoever named several at once


@dataclass(frozen=True, slots=True)
class LogSearch:
    """`texts` as they were typed, without the empty ones; `fields` is what the desk's form takes
    for them. `mistakes` has a sentence for each text that is wrong: nothing is found then."""

    texts: Mapping[str, str]
    api_fields: Mapping[str, Any]
    log_filter: LogFilter
    errors: Mapping[str, str]

    def query(self, **more: str) -> str:
        """Of an address that looks for the same on the page."""
        return urlencode({**self.texts, **more})

    def api_query(self, **more: str) -> str:
        """Of an address that looks for the same at the desk."""
        return urlencode({**self.api_fields, **more})


def parse_search(query: Mapping[str, str], tokens: Sequence[Token], now: int) -> LogSearch:
    """What a query asks for; `now` (Unix µs) is what durations count back from."""
    texts = {name: text for name in FILTER_FIELDS if (text := query.get(name, "").strip())}
    fields: dict[str, Any] = {}
    mistakes: dict[str, str] = {}
    for name, text in texts.items():
        try:
            fields[FILTER_FIELDS[name]] = _parse_filter(name, text, tokens, now)
        except ValueError as error:
            mistakes[name] = _capitalised(str(error))
    try:
        wanted = validate(LogFilterForm, fields).to_filter()
    except FormError as error:
        wanted = LogFilter()
        mistakes |= dict(_form_errors(error))
    return LogSearch(texts, fields, wanted, mistakes)


def _parse_filter(name: str, text: str, tokens: Sequence[Token], now: int) -> Any:
    if name in _MOMENTS:
        return parse_time(text, now, -1)
    return _token_id(text, tokens) if name == "key" else text


def _token_id(text: str, tokens: Sequence[Token]) -> str:
    """A key is meant by its id or its name; one that is gone still has its rows."""
    if text.startswith("tok_"):
        return text
    meant = [token.id for token in tokens if token.name == text]
    if not meant:
        raise ValueError("no key has this name")
    if len(meant) > 1:
        more = " …" if len(meant) > _CHOICES else ""
        raise ValueError(f"several keys have this name: {', '.join(meant[:_CHOICES])}{more}")
    return meant[0]


def _form_errors(error: FormError) -> Iterator[tuple[str, str]]:
    names = {field: name for name, field in FILTER_FIELDS.items()}
    for mistake in error.field_errors:
        yield names[str(mistake.path[0])], _capitalised(mistake.message)


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:].removesuffix(".") + "."
