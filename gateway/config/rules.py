"""Rules across the file: unique names, models that exist, headers that keep a secret.

They read the plain data, for they must be checked even where other places are wrong; so they must
not know the validated models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

from gateway.config.document import Document
from gateway.config.mistakes import Path
from gateway.config.secret import IN_THE_OPEN, is_bare_secret
from gateway.config.shipped import shipped_models

_EACH: Final = -1
Text = tuple[Path, str]


def check_rules(document: Document, literals: bool) -> None:
    """Note every mistake that no single place shows; `literals`: the file may have secrets."""
    data = document.data
    _check_unique(document, _texts(data, "channels", _EACH, "name"), "channel name")
    names = [*_texts(data, "models", _EACH, "id"), *_texts(data, "models", _EACH, "aliases", _EACH)]
    _check_unique(document, names, "model id or alias")
    for index in range(len(_inside(data, "channels"))):
        channel = ("channels", index)
        _check_unique(document, _texts(data, *channel, "accounts", _EACH, "name"), "account name")
        served = [*_texts(data, *channel, "models", _EACH), *_keys(data, *channel, "models")]
        _check_unique(document, served, "model")
        _check_known(document, served)
        if not literals:
            _check_headers(document, (*channel, "headers"))


def _check_unique(document: Document, names: Iterable[Text], what: str) -> None:
    first: dict[str, Path] = {}
    for path, name in names:
        if (before := first.setdefault(name, path)) != path:
            document.note(path, f"{what} already used on line {document.line(before)}")


def _check_known(document: Document, served: Iterable[Text]) -> None:
    data = document.data
    if isinstance(data, dict) and data.get("models") is not None:
        ids = [id for _, id in _texts(data, "models", _EACH, "id")]
    else:
        ids = [model["id"] for model in shipped_models()]
    aliases = {alias for _, alias in _texts(data, "models", _EACH, "aliases", _EACH)}
    for path, name in served:
        if name in ids:
            continue
        text = "an alias: a channel names the id" if name in aliases else "no such model"
        if likely := get_close_matches(name, ids, n=1):
            text += f"; did you mean {likely[0]}?"
        document.note(path, text)


def _check_headers(document: Document, headers: Path) -> None:
    for name, value in _children(_inside(document.data, *headers)):
        if isinstance(name, str) and isinstance(value, str) and is_bare_secret(name, value):
            document.note((*headers, name), IN_THE_OPEN)


def _texts(data: Any, *steps: str | int) -> Iterator[Text]:
    """Every text at the places that `steps` lead to, `_EACH` being every item of a list."""
    found: list[tuple[Path, Any]] = [((), data)]
    for step in steps:
        found = [
            ((*path, key), value)
            for path, place in found
            for key, value in _children(place)
            if step == key or (step == _EACH and isinstance(key, int))
        ]
    return ((path, value) for path, value in found if isinstance(value, str))


def _children(place: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(place, dict):
        return place.items()
    return enumerate(place) if isinstance(place, list) else ()


def _inside(data: Any, *path: str | int) -> Any:
    for step in path:
        data = dict(_children(data)).get(step)
    return data if isinstance(data, list | dict) else ()


def _keys(data: Any, *path: str | int) -> Iterator[Text]:
    place = _inside(data, *path)
    return (((*path, key), key) for key in place) if isinstance(place, dict) else iter(())
