"""`gateway prices`: brings the prices of models from a list that is kept offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml

from gateway.cli.errors import CommandRefused, report_config_errors
from gateway.cli.options import CommandContext, subcommand
from gateway.cli.output import Column, print_json, print_note, print_table
from gateway.config.document import read_document
from gateway.config.limits import DatedPrices
from gateway.config.load import load_config
from gateway.config.locate import read_file
from gateway.config.schema import Config

_DEFAULT_FILE: Final = "prices.yaml"
_COLUMNS: Final[dict[str, Column]] = {
    "Model": "model",
    "Channel": "channel",
    "Now": lambda row: _short(row["now"]),
    "Listed": lambda row: _short(row["listed"]),
    "Change": "change",
    "In the list": "source",
    "Not expressed": "left_out",
}


@click.group()
def prices() -> None:
    """Bring the prices of models from a list that is kept offline."""


@subcommand(prices, click.option("--dry-run", is_flag=True, help="Write nothing."))
def import_(context: CommandContext, dry_run: bool) -> None:
    """Write the listed prices of the configured models to a file beside the configuration.

    The list is that of the package genai-prices (pip install 'model-gateway[prices]'), as it is
    installed: nothing is downloaded. Models are found by the base_url of their channels and their
    upstream names. A price that the configuration itself states is kept.
    """
    with report_config_errors(as_json=context.as_json):
        loaded = load_config(context.config, resolve_secrets=False)
    try:
        from gateway.cli.prices.price_list import PriceList
    except ImportError:
        raise CommandRefused(
            "The list of prices needs genai-prices: pip install 'model-gateway[prices]'"
        ) from None
    price_list = PriceList()
    place = Path(context.config or "")  # without a file nothing is loaded
    rows = _compare(loaded, _stated(place), price_list)
    target = place.parent / (loaded.prices_file or _DEFAULT_FILE)
    if not dry_run:
        target.write_text(_text(rows, price_list.version), encoding="utf-8")
    if context.as_json:
        shown = [row | {name: _dump(row[name]) for name in ("now", "listed")} for row in rows]
        print_json({"file": None if dry_run else str(target), "prices": shown})
        return
    print_table(rows, _COLUMNS)
    if dry_run:
        print_note("Nothing was written.")
    else:
        print_note(f"Wrote {target}, from genai-prices {price_list.version}.")
        if loaded.prices_file is None:
            print_note(f"To use it, add to {place}: prices_file: {_DEFAULT_FILE}")


def _stated(file: Path) -> set[tuple[str, str | None]]:
    """Returns the models, and those of channels, whose price the configuration itself states."""
    data = read_document(read_file(file)[0], str(file)).data
    models = [each for each in data.get("models") or () if each.get("price")]
    channels = [each for each in data.get("channels") or () if each.get("prices")]
    return {(model["id"], None) for model in models} | {
        (id, channel.get("name")) for channel in channels for id in channel["prices"]
    }


def _compare(
    config: Config, stated: set[tuple[str, str | None]], price_list: Any
) -> list[dict[str, Any]]:
    """Returns a row for each model that is served, and for each channel where its listed price is
    another than at the first that serves it."""
    rows: dict[tuple[str, str | None], dict[str, Any]] = {}
    for model in config.models:
        first: DatedPrices | None = None
        found = False
        for channel in config.channels:
            if model.id not in channel.models:
                continue
            entry = price_list.find(channel.base_url, channel.models[model.id])
            own = found and entry is not None and entry.price != first
            if found and not own:
                continue
            if entry is not None and not own:
                found, first = True, entry.price
            where = channel.name if own else None
            now = channel.prices.get(model.id) if own else model.price
            place = model.id, where
            rows[place] = _row(*place, now, entry, is_stated=place in stated)
    return [*rows.values()]


def _row(
    model: str, channel: str | None, now: DatedPrices | None, entry: Any, *, is_stated: bool
) -> dict[str, Any]:
    listed = None if entry is None else entry.price
    if is_stated:
        change = "stated in the configuration"
    elif listed is None:
        change = "not in the list" + ("" if now is None else ": removed")
    else:
        change = "new" if now is None else "same" if now == listed else "changed"
    return {
        "model": model,
        "channel": channel,
        "now": now,
        "listed": listed,
        "change": change,
        "source": None if entry is None else entry.source,
        "left_out": None if entry is None else ", ".join(entry.left_out) or None,
    }


def _text(rows: list[dict[str, Any]], version: str) -> str:
    models: dict[str, Any] = {}
    channels: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["listed"] is None:
            continue
        prices = models if row["channel"] is None else channels.setdefault(row["channel"], {})
        prices[row["model"]] = _dump(row["listed"])
    data = {"models": models, "channels": channels}
    text: str = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=100)
    return f"# Written by gateway prices import from genai-prices {version}.\n{text}"


def _dump(price: DatedPrices | None) -> Mapping[str, Any] | None:
    if price is None:
        return None
    return price.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _short(price: DatedPrices | None) -> str | None:
    """`2 / 10`: input and output, with the number of later prices."""
    if price is None:
        return None
    more = f", {len(price.changes)} later" if price.changes else ""
    return f"{price.input:g} / {price.output:g}{more}"
