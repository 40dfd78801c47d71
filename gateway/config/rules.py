"""Rules across the file: unique names, models that exist, headers that keep a secret.

They read the plain data, for they must be checked even where other places are wrong; so they must
not know the validated models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

from gateway.config.document import Document
from gateway.config.mistakes import KeyPath
from gateway.config.secret import LITERAL_NOT_ALLOWED, is_literal_secret
from gateway.config.shipped import default_models

_WILDCARD: Final = -1
_TextAt = tuple[KeyPath, str]


def check_rules(document: Document, allow_literals: bool) -> None:
    """Note every mistake that no single place shows; `literals`: the file may have secrets."""
    data = document.data
    _check_unique(document, _texts_at(data, "channels", _WILDCARD, "name"), "channel name")
    names = [*_texts_at(data, "models", _WILDCARD, "id"), *_texts_at(data, "models", _WILDCARD, "aliases", _WILDCARD)]
    _check_unique(document, names, "model id or alias")
    for index in range(len(_value_at(data, "channels"))):
        channel = ("channels", index)
        _check_unique(document, _texts_at(data, *channel, "accounts", _WILDCARD, "name"), "account name")
        served = [*_texts_at(data, *channel, "models", _WILDCARD), *_keys_at(data, *channel, "models")]
        _check_unique(document, served, "model")
        _check_known(document, served)
        if not allow_literals:
            _check_headers(document, (*channel, "headers"))


def _check_unique(document: Document, names: Iterable[_TextAt], what: str) -> None:
    first: dict[str, KeyPath] = {}
    for path, name in names:
        if (before := first.setdefault(name, path)) != path:
            document.add_problem(path, f"{what} already used on line {document.line(before)}")


def _check_known(document: Document, served: Iterable[_TextAt]) -> None:
    data = document.data
    if isinstance(data, dict) and data.get("models") is not None:
        ids = [id for _, id in _texts_at(data, "models", _WILDCARD, "id")]
    else:
        ids = [model["id"] for model in default_models()]
    aliases = {alias for _, alias in _texts_at(data, "models", _WILDCARD, "aliases", _WILDCARD)}
    for path, name in served:
        if name in ids:
            continue
        text = "an alias: a channel names the id" if name in aliases else "no such model"
        if likely := get_close_matches(name, ids, n=1):
            text += f"; did you mean {likely[0]}?"
        document.add_problem(path, text)


def _check_headers(document: Document, headers: KeyPath) -> None:
    for name, value in _children(_value_at(document.data, *headers)):
        if isinstance(name, str) and isinstance(value, str) and is_literal_secret(name, value):
            document.add_problem((*headers, name), LITERAL_NOT_ALLOWED)


def _texts_at(data: Any, *steps: str | int) -> Iterator[_TextAt]:
    """Every text at the places that `steps` lead to, `_EACH` being every item of a list."""
    found: list[tuple[KeyPath, Any]] = [((), data)]
    for step in steps:
        found = [
            ((*path, key), value)
            for path, place in found
            for key, value in _children(place)
            if step == key or (step == _WILDCARD and isinstance(key, int))
        ]
    return ((path, value) for path, value in found if isinstance(value, str))


def _children(place: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(place, dict):
        return place.items()
    return enumerate(place) if isinstance(place, list) else ()


def _value_at(data: Any, *path: str | int) -> Any:
    for step in path:
        data = dict(_children(data)).get(step)
    return data if isinstance(data, list | dict) else ()


def _keys_at(data: Any, *path: str | int) -> Iterator[_TextAt]:
    place = _value_at(data, *path)
    return (((*path, key), key) for key in place) if isinstance(place, dict) else iter(())
