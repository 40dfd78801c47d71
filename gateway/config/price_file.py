"""The file of prices beside the configuration, for models and channels that state none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json

from gateway.config.document import ConfigError, Document, read_document
from gateway.config.limits import DatedPrices
from gateway.config.locate import read_file
from gateway.config.types import ConfigModel, ModelId


class PriceFile(ConfigModel):
    """The prices of models, and of channels where they differ."""

    models: Mapping[ModelId, DatedPrices] = {}
    """The prices by model."""
    channels: Mapping[str, Mapping[ModelId, DatedPrices]] = {}
    """The prices by channel and model."""


def read_price_file(
    path: Path, add_problem: Callable[[Document, ErrorDetails], None]
) -> dict[str, Any]:
    """Returns the prices of the file as a configuration would state them. Raises `ConfigError`."""
    document = read_document(read_file(path)[0], str(path))
    data = document.data or {}
    try:
        PriceFile.model_validate_json(to_json(data, inf_nan_mode="constants"))
    except ValidationError as error:
        for details in error.errors(include_url=False, include_context=False, include_input=False):
            add_problem(document, details)
    if document.problems:
        raise ConfigError(document.problems)
    return {"models": data.get("models") or {}, "channels": data.get("channels") or {}}


def add_prices(
    data: dict[str, Any], prices: Mapping[str, Any], catalog: Callable[[], Sequence[dict[str, Any]]]
) -> None:
    """Adds the prices to the models and channels of a configuration that state none."""
    if data.get("models") is None and prices["models"]:
        data["models"] = list(catalog())
    of_models = prices["models"]
    for index, model in enumerate(_list(data.get("models"))):
        if isinstance(model, dict) and model.get("id") in of_models and not model.get("price"):
            data["models"][index] = model | {"price": of_models[model["id"]]}
    for index, channel in enumerate(_list(data.get("channels"))):
        own = prices["channels"].get(channel.get("name")) if isinstance(channel, dict) else None
        models = channel.get("models") if own else ()
        served = {id: price for id, price in (own or {}).items() if id in (models or ())}
        if served and isinstance(stated := channel.get("prices", {}), dict):
            data["channels"][index] = channel | {"prices": served | stated}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
