"""What is looked for on the logs page: texts that a person typed, read into what the desk's forms
take. It must not know pages, nor how the ledger is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from gateway.admin.forms import FormError, WantedForm, fill
from gateway.admin.typed import read_moment
from gateway.store.logs import Wanted
from gateway.store.records import Token

FIELDS: Final = {
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
class Search:
    """`texts` as they were typed, without the empty ones; `fields` is what the desk's form takes
    for them. `mistakes` has a sentence for each text that is wrong: nothing is found then."""

    texts: Mapping[str, str]
    fields: Mapping[str, Any]
    wanted: Wanted
    mistakes: Mapping[str, str]

    def query(self, **more: str) -> str:
        """Of an address that looks for the same on the page."""
        return urlencode({**self.texts, **more})

    def desk_query(self, **more: str) -> str:
        """Of an address that looks for the same at the desk."""
        return urlencode({**self.fields, **more})


def search(query: Mapping[str, str], tokens: Sequence[Token], now: int) -> Search:
    """What a query asks for; `now` (Unix µs) is what durations count back from."""
    texts = {name: text for name in FIELDS if (text := query.get(name, "").strip())}
    fields: dict[str, Any] = {}
    mistakes: dict[str, str] = {}
    for name, text in texts.items():
        try:
            fields[FIELDS[name]] = _read(name, text, tokens, now)
        except ValueError as error:
            mistakes[name] = _sentence(str(error))
    try:
        wanted = fill(WantedForm, fields).wanted()
    except FormError as error:
        wanted = Wanted()
        mistakes |= dict(_told(error))
    return Search(texts, fields, wanted, mistakes)


def _read(name: str, text: str, tokens: Sequence[Token], now: int) -> Any:
    if name in _MOMENTS:
        return read_moment(text, now, -1)
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


def _told(error: FormError) -> Iterator[tuple[str, str]]:
    names = {field: name for name, field in FIELDS.items()}
    for mistake in error.mistakes:
        yield names[str(mistake.path[0])], _sentence(mistake.message)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:].removesuffix(".") + "."
