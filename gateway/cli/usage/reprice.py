"""`gateway usage reprice`: what requests of the past cost under the prices of today."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.admin.units import format_count, format_exact_usd, format_usd_change
from gateway.cli.client import Client, connect
from gateway.cli.errors import CommandRefused, report_config_errors
from gateway.cli.key import key_names
from gateway.cli.options import FILE, PAST_TIME, CommandContext, until_option, with_context
from gateway.cli.output import Column, Record, format_time, print_note, print_table, shorten
from gateway.cli.progress import show_progress
from gateway.store.records import started_us

if TYPE_CHECKING:
    from gateway.config.schema import Config
    from gateway.config.types import ConfigModel

_COLUMNS: Final[dict[str, Column]] = {
    "Key": lambda row: shorten(row["name"]),
    "Model": "model",
    "Requests": "rows",
    "USD before": lambda row: format_exact_usd(row["usd_before"]),
    "USD after": lambda row: format_exact_usd(row["usd_after"]),
    "Difference": lambda row: format_usd_change(row["difference"]),
}


@click.command()
@click.option(
    "--since",
    metavar="7d|yesterday|DATE",
    type=PAST_TIME,
    required=True,
    help="Requests that started on this date (UTC), or this long ago, or later.",
)
@until_option
@click.option(
    "--prices",
    type=FILE,
    help="A file of prices, such as gateway prices import writes, in place of the configured ones.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing.")
@with_context
def reprice(
    context: CommandContext, since: int, until: int | None, prices: Path | None, dry_run: bool
) -> None:
    """Recompute what requests cost in US dollars, from their kept usage and the configured prices.

    Prints the difference by key and model. Rows and sums change, budgets do not: they keep what was
    charged. Requests of the last eight hours cannot be repriced yet.
    """
    body = {"since": since, "until": until, "dry_run": dry_run, "prices": _book(context, prices)}
    with connect(context.state_dir, context.config) as client:
        result = _reprice(context, client, body)
        names = key_names(client)
    for row in result["differences"]:
        row["name"] = names.get(row["key"], row["key"])
        row["difference"] = row["usd_after"] - row["usd_before"]
    result["differences"].sort(key=lambda row: (-abs(row["difference"]), row["key"], row["model"]))
    context.print(result | {"dry_run": dry_run}, lambda _: _print(result, dry_run=dry_run))


def _book(context: CommandContext, file: Path | None) -> dict[str, Any]:
    """The prices of the configuration, or those of the file for what it names."""
    found = context.gateway_config()
    if found is None:
        raise CommandRefused("There is no valid configuration with prices: name it with --config.")
    config: Config = found[1]
    models = [
        {"id": each.id, "family": each.family, "price": each.price and _json(each.price)}
        for each in config.models
    ]
    channels = {
        each.name: {id: _json(price) for id, price in each.prices.items()}
        for each in config.channels
    }
    if file is not None:
        from gateway.config.price_file import read_price_file
        from gateway.config.validation import add_problem

        with report_config_errors(as_json=context.as_json):
            stated = read_price_file(file, add_problem)
        for model in models:
            model["price"] = stated["models"].get(model["id"], model["price"])
        channels |= {name: channels.get(name, {}) | own for name, own in stated["channels"].items()}
    return {"models": models, "channels": channels, "money": _json(config.money)}


def _json(prices: ConfigModel) -> dict[str, Any]:
    return prices.model_dump(mode="json", by_alias=True)


def _reprice(context: CommandContext, client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Calls the API until the span is done; returns the sum of what it answers."""
    rows = kept = 0
    found: dict[tuple[str, str], Record] = {}
    with show_progress("Repricing", hidden=context.as_json) as progress:
        while True:
            part = client.post("/usage/reprice", body)
            rows, kept, until = rows + part["rows"], kept + part["kept"], part["until"]
            for each in part["differences"]:
                total = found.setdefault((each["key"], each["model"]), each)
                if total is not each:
                    for name in ("rows", "usd_before", "usd_after"):
                        total[name] += each[name]
            if part["after"] is None:
                break
            body = body | {"after": part["after"], "until": until}
            progress(started_us(part["after"]) - body["since"], max(1, until - body["since"]))
    return {"rows": rows, "kept": kept, "until": until, "differences": list(found.values())}


def _print(result: dict[str, Any], *, dry_run: bool) -> None:
    differences = result["differences"]
    changed = sum(row["rows"] for row in differences)
    if differences:
        totals = [sum(row[name] for row in differences) for name in ("usd_before", "usd_after")]
        total = {"name": "Total", "model": None, "rows": changed, "usd_before": totals[0]}
        total |= {"usd_after": totals[1], "difference": totals[1] - totals[0]}
        print_table([*differences, total], _COLUMNS)
    looked = f"of {format_count(result['rows'])} requests before {format_time(result['until'])}"
    done = "would cost something else" if dry_run else "cost something else now"
    click.echo(f"{format_count(changed)} {looked} {done}.")
    if kept := result["kept"]:
        print_note(
            f"{format_count(kept)} keep their cost: their model has no price in USD, or one that "
            "depends on each of the upstream requests that they took."
        )
    if dry_run:
        print_note("Nothing was changed.")
