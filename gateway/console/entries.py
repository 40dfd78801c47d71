"""What is typed into the forms of keys and groups: read into what the desk's forms take, and shown
as it would be typed. It must not know pages, nor whether what is named exists.

Texts go by the names of the records' fields (limits by `gateway.core.limits.LIMITS`); nothing at
all, `none` and `never` clear what may be absent. Times are Unix microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeVar

from gateway.admin.forms import Form, FormError, validate
from gateway.admin.typed import NONE_WORDS, parse_count, parse_time, parse_duration, parse_units
from gateway.core.limits import LIMIT_NAMES, MICRO_PER_UNIT, Limits
from gateway.quota.periods import format_utc
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
