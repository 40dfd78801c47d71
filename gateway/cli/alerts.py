"""`gateway alerts`: what fires, and whether the webhooks work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import click
from rich.text import Text

from gateway.cli.client import connect, quote_path
from gateway.cli.options import CommandContext, subcommand
from gateway.cli.output import Column, Record, format_time, print_note, print_table

_TEST_TIMEOUT: Final = 90.0  # seconds
_COLOURS: Final = {"critical": "red", "warning": "yellow", "info": "cyan"}


def _deliveries(alert: dict[str, Any]) -> str | None:
    states = alert["deliveries"].items()
    return ", ".join(f"{webhook}: {state}" for webhook, state in states) or None


_ALERT_COLUMNS: Final[dict[str, Column]] = {
    "Since": lambda alert: format_time(alert["since"]),
    "Severity": lambda alert: Text(alert["severity"], _COLOURS.get(alert["severity"], "")),
    "Alert": "alert",
    "Summary": "summary",
    "Webhooks": _deliveries,
}
_TEST_COLUMNS: Final[dict[str, Column]] = {
    "Webhook": "webhook",
    "Result": lambda test: Text("ok", "green") if test["ok"] else Text("failed", "red"),
    "Seconds": lambda test: f"{test['seconds']:.2f}",
    "Error": "error",
}


@click.group()
def alerts() -> None:
    """Show the alerts of the running gateway, and test its webhooks."""


@subcommand(alerts)
def list_(context: CommandContext) -> None:
    """List alerts that fire, oldest first, and whether the webhooks were told."""
    with connect(context.state_dir, may_serve=False) as client:
        answer = client.get("/alerts")
    alerts = answer.pop("alerts")
    context.print_list(alerts, partial(_print_alerts, answer), about=answer)


@subcommand(alerts, click.option("--webhook", help="The webhook to test; default: all."))
def test(context: CommandContext, webhook: str | None) -> None:
    """Send a test message to the webhooks and print what they answer."""
    query = f"?webhook={quote_path(webhook)}" if webhook is not None else ""
    with connect(context.state_dir, may_serve=False, timeout=_TEST_TIMEOUT) as client:
        results = client.post(f"/alerts/test{query}", None)["results"]
    context.print_table(results, _TEST_COLUMNS)
    if not all(each["ok"] for each in results):
        sys.exit(1)


def _print_alerts(answer: dict[str, Any], alerts: Sequence[Record]) -> None:
    if alerts:
        print_table(alerts, _ALERT_COLUMNS)
        for kind, number in answer["held_back"].items():
            print_note(f"{number} more of {kind}, held back until others are over.")
    elif answer["configured"]:
        print_note("No alert fires.")
    else:
        print_note("Alerts are off: the configuration has no section alerts.")
