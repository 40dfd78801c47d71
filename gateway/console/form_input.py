"""What is typed into the forms of keys and groups: read into what the desk's forms take, and shown
as it would be typed. It must not know pages, nor whether what is named exists.

Texts go by the names of the records' fields (limits by `gateway.core.limits.LIMITS`); nothing at
all, `none` and `never` clear what may be absent. Times are Unix microseconds.

What is looked for on the logs page: texts that a person typed, read into what the desk's forms
take. It must not know pages, nor how the ledger is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from gateway.admin.forms import Form, FormError, LogFilterForm, validate
from gateway.admin.units import NONE_WORDS, parse_count, parse_duration, parse_time, parse_units
from gateway.core.limits import LIMIT_NAMES, MICRO_PER_UNIT, Limits
from gateway.quota.budgets import format_utc
from gateway.store.logs import LogFilter
from gateway.store.records import Group, Token

Texts = Mapping[str, str]

F = TypeVar("F", bound=Form)

CHECKED: Final = "yes"
"""The text of a box that is ticked; one that is not has none."""


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
    for name, reader in _READERS.items():
        text = _unified(texts.get(name, ""))
        if text == shown.get(name, ""):
            continue
        try:
            value = reader(text, now)
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
    """What would have to be typed for the token to be as it is."""
    return {
        "name": token.name,
        "group": token.group,
        "note": token.note or "",
        "expires_at": "" if token.expires_at is None else format_utc(token.expires_at),
        "probe": CHECKED if token.probe else "",
        "models": _lines(token.models),
        "addresses": _lines(token.addresses),
        "user_agents": _lines(token.user_agents),
    } | _texts_of_limits(token.limits)


def group_to_texts(group: Group) -> dict[str, str]:
    """What would have to be typed for the group to be as it is."""
    return {
        "name": group.name,
        "patterns": _lines(group.patterns),
        "multiplier": group.multiplier,
        "user_agents": _lines(group.user_agents),
        "user_agent_mode": group.user_agent_mode,
    } | _texts_of_limits(group.limits)


def _texts_of_limits(limits: Limits) -> dict[str, str]:
    texts = {}
    for name in LIMIT_NAMES:
        value: int | None = getattr(limits, name)
        scale = MICRO_PER_UNIT if name.startswith("budget") else 1
        texts[name] = "" if value is None else _amount(Decimal(value) / scale)
    return texts


def _amount(number: Decimal) -> str:
    """As short as it can be typed: 5M, 250k, 0.5."""
    for thousands, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number and not number % thousands:
            return f"{int(number // thousands)}{letter}"
    return f"{number.normalize():f}"


def _lines(patterns: tuple[str, ...] | None) -> str:
    return "\n".join(patterns or ())


def _unified(text: str) -> str:
    """Browsers end lines in two characters."""
    return text.replace("\r\n", "\n").strip()


def _as_text(text: str, now: int) -> str:
    return text


def _as_bool(text: str, now: int) -> bool:
    return text == CHECKED


def _optional(read: Callable[[str, int], Any]) -> Callable[[str, int], Any]:
    return lambda text, now: None if not text or text in NONE_WORDS else read(text, now)


def _some_words(text: str, now: int) -> list[str]:
    return text.replace(",", " ").split()


def _some_lines(text: str, now: int) -> list[str]:
    """Agents may have blanks and commas in them."""
    return [line for each in text.split("\n") if (line := each.strip())]


_READERS: Final[Mapping[str, Callable[[str, int], Any]]] = {
    "name": _as_text,
    "group": _as_text,
    "note": lambda text, now: text or None,
    "expires_at": _optional(lambda text, now: parse_time(text, now, 1)),
    "probe": _as_bool,
    "models": _optional(_some_words),
    "addresses": _optional(_some_words),
    "patterns": _some_words,
    "multiplier": _as_text,
    "user_agents": _optional(_some_lines),
    "user_agent_mode": _as_text,
    "requests_per_minute": _optional(lambda text, now: parse_count(text)),
    "tokens_per_minute": _optional(lambda text, now: parse_count(text)),
    "concurrent": _optional(lambda text, now: parse_count(text)),
    "budget": _optional(lambda text, now: parse_units(text)),
    "budget_day": _optional(lambda text, now: parse_units(text)),
    "budget_month": _optional(lambda text, now: parse_units(text)),
}


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
