"""Checks a document: data to `Config`, and every problem at its place in the file.

A problem shows no value of the file, only its place and kind: a value may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_json

from gateway.config.discovered import Discovered
from gateway.config.document import ConfigError, Document, KeyPath
from gateway.config.presets import complete_channels
from gateway.config.price_file import add_prices, read_price_file
from gateway.config.schema import Config, catalog_data, default_catalog
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
_TextAt = tuple[KeyPath, str]


def validate(
    document: Document, secrets: SecretResolver | None, discovered: Discovered | None = None
) -> Config:
    """The configuration, with the models that were `discovered`; raises ConfigError with all
    problems of the document. Strict JSON mode is
    what YAML needs: only lists become tuples, and texts enum members."""
    complete_channels(document, catalog_data, discovered or {})
    _add_price_file(document)
    _check_across(document, allow_literals=secrets is None or secrets.allow_literals)
    data = {} if document.data is None else document.data
    try:
        config = Config.model_validate_json(
            to_json(data, inf_nan_mode="constants"), context=secrets
        )
    except ValidationError as error:
        for details in error.errors(include_url=False, include_context=False, include_input=False):
            add_problem(document, details)
        raise ConfigError(document.problems) from None
    if document.problems:
        raise ConfigError(document.problems)
    return config


def _add_price_file(document: Document) -> None:
    data = document.data
    if isinstance(data, dict) and isinstance(file := data.get("prices_file"), str) and file:
        prices = read_price_file(Path(document.file).parent / file, add_problem)
        add_prices(data, prices, catalog_data)


def add_problem(document: Document, details: ErrorDetails) -> None:
    kind = details["type"]
    path, value = _locate(document.data, details["loc"])
    if kind == "too_short" and value:
        return  # its items are wrong, and pydantic counts only valid ones
    if kind.endswith("_type") and path in document.unparsed:
        return  # already reported by the parser
    if kind == "extra_forbidden":
        document.add_problem(path, _unknown_key(path))
    elif kind == "missing":
        document.add_problem((*path, details["loc"][-1]), "is missing")
    else:
        text = details["msg"].replace("Input should be", "must be")
        document.add_problem(path, _MESSAGES.get(kind, text))


def _locate(data: Any, steps: KeyPath) -> tuple[KeyPath, Any]:
    """pydantic's `steps` as a path of the file, and the value there: without steps that are not in
    the file, with the index of a model that a channel lists."""
    path: KeyPath = ()
    for step in steps:
        if isinstance(data, list) and step in data:
            step = data.index(step)
        is_index = isinstance(data, list) and isinstance(step, int)
        if is_index or (isinstance(data, dict) and step in data):
            data = data[step]  # a key of the dict, an index of the list
            path = (*path, step)
    return path, data


def _unknown_key(path: KeyPath) -> str:
    model: type[BaseModel] = Config
    for step in path[:-1]:
        if isinstance(step, str) and step in model.model_fields:  # else the key of a mapping
            annotation = model.model_fields[step].annotation
            bare = (getattr(kind, "__origin__", kind) for kind in get_args(annotation))
            kinds = [
                kind
                for kind in (annotation, *bare)
                if isinstance(kind, type) and issubclass(kind, BaseModel)
            ]
            model = kinds[0] if kinds else model
    names = [field.alias or name for name, field in model.model_fields.items()]
    return "unknown key" + _suggestion(str(path[-1]), names)


def _suggestion(name: str, names: Iterable[str]) -> str:
    matches = get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def _check_across(document: Document, *, allow_literals: bool) -> None:
    """Checks what no single place shows: unique names, existing models, and no literal secrets in
    headers unless the file may contain them. Reads the plain data: other places may be wrong."""
    data = document.data
    ids, aliases = _texts(data, "models.*.id"), _texts(data, "models.*.aliases.*")
    _check_unique(document, _texts(data, "channels.*.name"), "channel name")
    _check_unique(document, [*ids, *aliases], "model id or alias")
    _check_unique(document, _texts(data, "alerts.webhooks.*.name"), "webhook name")
    if isinstance(data, dict) and data.get("shared") and not data.get("database"):
        document.add_problem(("shared",), "needs database: replicas keep keys and money there")
    model_ids = {id for _, id in ids}
    names = {alias for _, alias in aliases}
    for path, model in _find(data, "models.*"):
        fallbacks = _texts(model, "fallbacks.*", path)
        _check_models(document, fallbacks, model_ids, names)
        _check_unique(document, [*_texts(model, "id", path), *fallbacks], "model")
    if not isinstance(data, dict) or data.get("models") is None:
        model_ids = {model.id for model in default_catalog()}
    for path, channel in _find(data, "channels.*"):
        _check_unique(document, _texts(channel, "accounts.*.name", path), "account name")
        models = _keys_or_texts(channel, "models.*", path)
        _check_unique(document, models, "model")
        _check_models(document, models, model_ids, names)
    sections = ("channels.*", "search", "traces", "alerts.webhooks.*")
    for place, header in chain.from_iterable(
        _texts(data, f"{each}.headers.*") for each in sections
    ):
        if not allow_literals and is_literal_secret(str(place[-1]), header):
            document.add_problem(place, LITERAL_NOT_ALLOWED)


def _check_unique(document: Document, names: Iterable[_TextAt], what: str) -> None:
    first: dict[str, KeyPath] = {}
    for path, name in names:
        if (before := first.setdefault(name, path)) != path:
            document.add_problem(path, f"{what} already used on line {document.line(before)}")


def _check_models(
    document: Document, models: Iterable[_TextAt], model_ids: Set[str], aliases: Set[str]
) -> None:
    for path, name in models:
        if name not in model_ids:
            text = "an alias: here the id is needed" if name in aliases else "no such model"
            document.add_problem(path, text + _suggestion(name, sorted(model_ids)))


def _find(data: Any, pattern: str, path: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    """The values below `path` at the dotted keys of `pattern`; `*` is every key or index."""
    matches = [(path, data)]
    for step in pattern.split("."):
        matches = [
            ((*at, key), child)
            for at, value in matches
            for key, child in _children(value)
            if step in ("*", key)
        ]
    return matches


def _texts(data: Any, pattern: str, path: KeyPath = ()) -> list[_TextAt]:
    return [(at, value) for at, value in _find(data, pattern, path) if isinstance(value, str)]


def _keys_or_texts(data: Any, pattern: str, path: KeyPath) -> list[_TextAt]:
    """The keys of a mapping, or the texts of a list."""
    keys = [(at, key) for at, _ in _find(data, pattern, path) if isinstance(key := at[-1], str)]
    return keys or _texts(data, pattern, path)


def _children(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()
