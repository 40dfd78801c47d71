"""What is typed into the forms of keys and groups: read into what the desk's forms take, and shown
as it would be typed. It must not know pages, nor whether what is named exists.

Texts go by the names of the records' fields (limits by `gateway.core.limits.LIMITS`); nothing at
all, `none` and `never` clear what may be absent. Times are Unix microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeVar

from gateway.admin.forms import Form, FormError, fill
from gateway.admin.typed import NONE, read_count, read_moment, read_seconds, read_units
from gateway.core.limits import LIMITS, MICRO, Limits
from gateway.quota.periods import spelled
from gateway.store.records import Group, Token

Texts = Mapping[str, str]

F = TypeVar("F", bound=Form)

YES: Final = "yes"
"""The text of a box that is ticked; one that is not has none."""


class Wrong(Exception):
    """`mistakes` has a sentence for each text that is wrong."""

    def __init__(self, mistakes: Texts) -> None:
        super().__init__("; ".join(f"{name}: {words}" for name, words in mistakes.items()))
        self.mistakes = mistakes


def read(form: type[F], texts: Texts, shown: Texts, now: int) -> F:
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
        (limits if name in LIMITS else fields)[name] = value
    if limits:
        fields["limits"] = limits
    try:
        filled = fill(form, fields)
    except FormError as error:
        for mistake in error.mistakes:
            name, words = _told(mistake.path, mistake.message)
            mistakes.setdefault(name, words)
        raise Wrong(mistakes) from None
    if mistakes:
        raise Wrong(mistakes)
    return filled


def read_overlap(text: str) -> int:
    """Seconds. Raises Wrong."""
    try:
        return read_seconds(text.strip())
    except ValueError as error:
        raise Wrong({"overlap": _sentence(str(error))}) from None


def texts_of_token(token: Token) -> dict[str, str]:
    """What would have to be typed for the token to be as it is."""
    return {
        "name": token.name,
        "group": token.group,
        "note": token.note or "",
        "expires_at": "" if token.expires_at is None else spelled(token.expires_at),
        "probe": YES if token.probe else "",
        "models": _lines(token.models),
        "addresses": _lines(token.addresses),
        "user_agents": _lines(token.user_agents),
    } | _texts_of_limits(token.limits)


def texts_of_group(group: Group) -> dict[str, str]:
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
    for name in LIMITS:
        value: int | None = getattr(limits, name)
        scale = MICRO if name.startswith("budget") else 1
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


def _word(text: str, now: int) -> str:
    return text


def _bit(text: str, now: int) -> bool:
    return text == YES


def _optional(read: Callable[[str, int], Any]) -> Callable[[str, int], Any]:
    return lambda text, now: None if not text or text in NONE else read(text, now)


def _some_words(text: str, now: int) -> list[str]:
    return text.replace(",", " ").split()


def _some_lines(text: str, now: int) -> list[str]:
    """Agents may have blanks and commas in them."""
    return [line for each in text.split("\n") if (line := each.strip())]


_READERS: Final[Mapping[str, Callable[[str, int], Any]]] = {
    "name": _word,
    "group": _word,
    "note": lambda text, now: text or None,
    "expires_at": _optional(lambda text, now: read_moment(text, now, 1)),
    "probe": _bit,
    "models": _optional(_some_words),
    "addresses": _optional(_some_words),
    "patterns": _some_words,
    "multiplier": _word,
    "user_agents": _optional(_some_lines),
    "user_agent_mode": _word,
    "requests_per_minute": _optional(lambda text, now: read_count(text)),
    "tokens_per_minute": _optional(lambda text, now: read_count(text)),
    "concurrent": _optional(lambda text, now: read_count(text)),
    "budget": _optional(lambda text, now: read_units(text)),
    "budget_day": _optional(lambda text, now: read_units(text)),
    "budget_month": _optional(lambda text, now: read_units(text)),
}


def _told(path: tuple[str | int, ...], message: str) -> tuple[str, str]:
    """The name of the text that a mistake of the form is in, and the sentence for it."""
    name = str(path[1] if path[:1] == ("limits",) and len(path) > 1 else path[0] if path else "")
    numbers = [step for step in path[1:] if isinstance(step, int)]
    which = f"Number {numbers[0] + 1}: " if numbers else ""
    return name, which + _sentence(message)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:].removesuffix(".") + "."
