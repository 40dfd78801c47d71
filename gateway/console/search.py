"""What is looked for on the logs page: texts that a person typed, read into what the desk's forms
take. It must not know pages, nor how the ledger is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from gateway.admin.forms import FormError, LogFilterForm, validate
from gateway.admin.typed import parse_time
from gateway.store.logs import LogFilter
from gateway.store.records import Token

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
