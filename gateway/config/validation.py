"""Data → `Config`, with pydantic's findings told as mistakes in the file.

It must not read a value into a text: of every finding only its place and its kind are used.

Rules across the file: unique names, models that exist, headers that keep a secret.

They read the plain data, for they must be checked even where other places are wrong; so they must
not know the validated models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_json

from gateway.config.catalog import default_models
from gateway.config.document import ConfigError, Document, KeyPath
from gateway.config.schema import Config
from gateway.config.secrets import LITERAL_NOT_ALLOWED, SecretResolver, is_literal_secret

_MESSAGES: Final = {
    "string_type": "must be text: put it in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "mapping_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "string_pattern_mismatch": "has characters that are not accepted here, or is too long",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "pattern_regex": "is not a valid regular expression",
    "ip_any_network": "must be a network such as 10.0.0.0/8",
}


def validate(document: Document, secrets: SecretResolver | None) -> Config:
    """The configuration; raises ConfigMistakes with everything that is wrong in the document.

    Strict JSON rules are YAML's own: lists become tuples, texts become names of a closed set, and
    nothing else is converted.
    """
    check_rules(document, allow_literals=secrets is None or secrets.allow_literals)
    data = {} if document.data is None else document.data
    try:
        config = Config.model_validate_json(
            to_json(data, inf_nan_mode="constants"), context=secrets
        )
    except ValidationError as error:
        for finding in error.errors(include_url=False, include_context=False, include_input=False):
            _add_finding(document, finding)
        raise ConfigError(document.problems) from None
    if document.problems:
        raise ConfigError(document.problems)
    return config


def _add_finding(document: Document, finding: ErrorDetails) -> None:
    kind = finding["type"]
    path, value = _locate(document.data, finding["loc"])
    if kind == "too_short" and value:
        return  # its items are wrong, and pydantic counts the right ones only
    if kind.endswith("_type") and path in document.unparsed:
        return  # nothing could be read there, which is noted already
    if kind == "extra_forbidden":
        document.add_problem(path, _unknown_key(path))
    elif kind == "missing":
        document.add_problem((*path, finding["loc"][-1]), "is missing")
    else:
        text = finding["msg"].replace("Input should be", "must be")
        document.add_problem(path, _MESSAGES.get(kind, text))


def _locate(data: Any, steps: KeyPath) -> tuple[KeyPath, Any]:
    """`steps` as a path of the file, and what is there: without pydantic's own marks, with the
    index of a model that a channel names in a list."""
    path: KeyPath = ()
    for step in steps:
        if isinstance(data, list) and step in data:
            step = data.index(step)
        if (isinstance(data, dict) and step in data) or isinstance(data, list):
            data = data[step]  # type: ignore[index]  # a key of the dict, an index of the list
            path = (*path, step)
    return path, data


def _unknown_key(path: KeyPath) -> str:
    section: type[BaseModel] = Config
    for step in path[:-1]:
        if isinstance(step, str):
            annotation = section.model_fields[step].annotation
            section = next(
                kind
                for kind in (annotation, *get_args(annotation))
                if isinstance(kind, type) and issubclass(kind, BaseModel)
            )
    names = [field.alias or name for name, field in section.model_fields.items()]
    likely = get_close_matches(str(path[-1]), names, n=1)
    return f"unknown key; did you mean {likely[0]}?" if likely else "unknown key"


_WILDCARD: Final = -1
_TextAt = tuple[KeyPath, str]


def check_rules(document: Document, allow_literals: bool) -> None:
    """Note every mistake that no single place shows; `literals`: the file may have secrets."""
    data = document.data
    _check_unique(document, _texts_at(data, "channels", _WILDCARD, "name"), "channel name")
    names = [
        *_texts_at(data, "models", _WILDCARD, "id"),
        *_texts_at(data, "models", _WILDCARD, "aliases", _WILDCARD),
    ]
    _check_unique(document, names, "model id or alias")
    for index in range(len(_value_at(data, "channels"))):
        channel = ("channels", index)
        _check_unique(
            document, _texts_at(data, *channel, "accounts", _WILDCARD, "name"), "account name"
        )
        served = [
            *_texts_at(data, *channel, "models", _WILDCARD),
            *_keys_at(data, *channel, "models"),
        ]
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
