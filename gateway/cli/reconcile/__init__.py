"""`gateway reconcile`: what a vendor bills and the request log does not say, by cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from gateway.admin.units import format_count, format_exact_usd, format_usd_change
from gateway.cli.client import Client, connect
from gateway.cli.errors import CommandRefused
from gateway.cli.options import FILE, CommandContext, with_context
from gateway.cli.output import Column, Record, format_time, print_note, print_table
from gateway.cli.progress import show_progress

_PAGE: Final = 1000
_MIN_PAGE: Final = 50
_MOST_FAILED: Final = 60
"""Reads of one page, of two seconds each."""

_COLUMNS: Final[dict[str, Column]] = {
    "Cause": "cause",
    "Lines": "lines",
    "Difference": lambda row: format_usd_change(round(row["usd"])),
}
_LINE_COLUMNS: Final[dict[str, Column]] = {
    "Model": "model",
    "Request or time": lambda row: row["id"] or format_time(row["start"]),
    "Cause": "cause",
    "Difference": lambda row: format_usd_change(round(row["usd"])),
}


@click.command()
@click.argument("file", type=FILE)
@click.option("--channel", "channels", multiple=True, help="Only requests to this channel.")
@click.option("--lines", default=10, show_default=True, help="The largest differences to list.")
@with_context
def reconcile(context: CommandContext, file: Path, channels: tuple[str, ...], lines: int) -> None:
    """Compare a usage export of a vendor with the request log, and explain the difference.

    FILE is a CSV or JSON export of OpenAI, Anthropic, OpenRouter or Amazon Bedrock, or has the
    columns start, model, input and output. Costs are those of the configured prices, without
    multipliers of groups.
    """
    # Imported here: few commands need what validates configurations.
    from gateway.cli.reconcile.comparison import Comparison
    from gateway.cli.reconcile.exports import read_export

    found = context.gateway_config()
    if found is None:
        raise CommandRefused("There is no valid configuration with prices: name it with --config.")
    comparison = Comparison(read_export(file), found[1], channels)
    with (
        show_progress("Reading", hidden=context.as_json) as progress,
        connect(context.state_dir, context.config) as client,
    ):
        for row in _rows(client, comparison.since, comparison.until):
            comparison.add(row)
            progress(comparison.until - row["started_at"], comparison.until - comparison.since)
    result = comparison.result()
    context.print(_plain(result), lambda _: _print(result, lines))


def _rows(client: Client, since: int, until: int) -> Iterator[Record]:
    """Requests that have used an upstream, newest first."""
    before: str | None = None
    limit, failed = _PAGE, 0
    while True:
        try:
            page = client.get("/requests", since=since, until=until, limit=limit, before=before)
        except CommandRefused as error:
            failed += 1
            if error.code != "too_much_to_read" or failed > _MOST_FAILED:
                raise
            limit = max(limit // 2, _MIN_PAGE)  # a busy machine
            continue
        failed = 0
        yield from page["requests"]
        if page["searched_to"] is None and len(page["requests"]) < limit:
            return
        limit = min(2 * limit, _PAGE)
        before = page["searched_to"] or page["requests"][-1]["id"]


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """The result with whole millionths of a dollar."""
    rounded = {name: round(result[name]) for name in ("own", "billed", "difference")}
    lists = {
        name: [each | {"usd": round(each["usd"])} for each in result[name]]
        for name in ("causes", "parts")
    }
    return result | rounded | lists


def _print(result: dict[str, Any], lines: int) -> None:
    if causes := result["causes"]:
        total = {"cause": "Total", "lines": None, "usd": result["difference"]}
        print_table([*causes, total], _COLUMNS)
    if lines and result["parts"]:
        print_table(result["parts"][:lines], _LINE_COLUMNS)
    own, billed = (format_exact_usd(round(result[name])) for name in ("own", "billed"))
    click.echo(f"Billed {billed}; the request log says {own} ({result['export']}).")
    if unpriced := result["unpriced"]:
        print_note(f"{format_count(unpriced)} requests or lines have no price in USD.")
