"""Presets of channels: what is public of a platform, as defaults of the channels that name it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

import yaml

from gateway.config.discovered import Discovered, add_discovered
from gateway.config.document import Document, KeyPath

_NO_ACCOUNTS: Final = [{"name": "main", "key": "none"}]
"""Those of a channel whose upstream asks for no credential."""

_PLACEHOLDER: Final = {
    **{"name": "unknown", "format": "chat", "base_url": "https://missing.invalid/upstream"},
    **{"accounts": _NO_ACCOUNTS, "family": "beta"},
}
"""In place of what a preset would state, so that its own problem is the only one reported."""


@cache
def presets() -> Mapping[str, Any]:
    """Returns the presets by name: `formats`, `variable`, `example`, `hints`."""
    text = files("gateway.config").joinpath("presets.yaml").read_text(encoding="utf-8")
    return cast(Mapping[str, Any], yaml.load(text, Loader=yaml.CSafeLoader))


def platform_hint(preset: str | None, error: str) -> str | None:
    """Returns what to do about an error of a preset's platform, in the platform's own terms."""
    hints = presets().get(preset or "", {}).get("hints", {})
    matching = (hint for pattern, hint in hints.items() if re.search(pattern, error, re.IGNORECASE))
    return next(matching, None)


def complete_channels(
    document: Document, catalog: Callable[[], Sequence[dict[str, Any]]], discovered: Discovered
) -> None:
    """Completes the channels of a document by their presets and by what was discovered, and adds
    the models of channels with a `family` that are in no catalog; `catalog` reads that of documents
    without models. What has another form than it should have is left for the validation."""
    data = document.data
    channels = data.get("channels") if isinstance(data, dict) else None
    if not isinstance(channels, list):
        return
    for index, channel in enumerate(channels):
        if isinstance(channel, dict) and isinstance(channel.get("preset"), str):
            channels[index] = _complete(document, ("channels", index), channel)
    complete = [each for each in channels if isinstance(each, dict)]
    details: dict[str, dict[str, Any]] = {}
    for channel in complete:
        details = add_discovered(channel, discovered) | details
    _add_models(data, complete, catalog, details)


def _complete(document: Document, path: KeyPath, channel: dict[str, Any]) -> dict[str, Any]:
    name = channel["preset"]
    preset = presets().get(name)
    if preset is None:
        similar = get_close_matches(name, presets(), n=1)
        hint = f"; did you mean {similar[0]}?" if similar else f": {', '.join(presets())}"
        document.add_problem((*path, "preset"), f"no such preset{hint}")
        return _PLACEHOLDER | channel
    formats = preset["formats"]
    format = channel.get("format", next(iter(formats)))
    if format not in formats:
        document.add_problem((*path, "format"), f"{name} has {', '.join(formats)}")
        return _PLACEHOLDER | channel
    if "base_url" not in channel and "example" in preset:
        document.add_problem(
            (*path, "base_url"), f"is missing: of {name} it is {preset['example']}"
        )
        channel = {**channel, "base_url": _PLACEHOLDER["base_url"]}
    defaults = {"name": name, "format": format, **formats[format]}
    if channel.get("auth", defaults.get("auth")) in ("none", "client"):
        defaults["accounts"] = _NO_ACCOUNTS
    for option, value in channel.items():
        default = defaults.get(option)
        if isinstance(value, dict) and isinstance(default, dict):
            value = {**default, **value}
        defaults[option] = value
    return defaults


def _add_models(
    data: dict[str, Any],
    channels: Sequence[dict[str, Any]],
    catalog: Callable[[], Sequence[dict[str, Any]]],
    details: Mapping[str, dict[str, Any]],
) -> None:
    if not details and not any("family" in channel for channel in channels):
        return
    stated = data.get("models")
    known = stated if isinstance(stated, list) else catalog()
    names = {
        name
        for model in known
        if isinstance(model, dict)
        for name in (model.get("id"), *_list(model.get("aliases")))
        if isinstance(name, str)
    }
    added = []
    for channel in channels:
        models = channel.get("models")
        for id in models if isinstance(models, dict) else _list(models):
            if "family" in channel and isinstance(id, str) and id not in names:
                names.add(id)
                added.append({"id": id, "family": channel["family"], **details.get(id, {})})
    if isinstance(stated, list):
        stated = [_with_details(model, details) for model in stated]
    if (added and stated is None) or isinstance(stated, list):
        data["models"] = [*(known if stated is None else stated), *added]


def _with_details(model: Any, details: Mapping[str, dict[str, Any]]) -> Any:
    """What the file states of a model wins over what its upstream lists of it."""
    id = model.get("id") if isinstance(model, dict) else None
    return {**details[id], **model} if isinstance(id, str) and id in details else model


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
