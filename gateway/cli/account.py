"""`gateway account`: the state of upstream accounts."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from gateway.admin.units import format_duration, refuses_line
from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import CommandRefused
from gateway.cli.options import CommandContext, subcommand
from gateway.cli.output import (
    Column,
    format_time,
    print_note,
    print_record,
    shorten,
)

AccountState = dict[str, Any]
"""The state of an account with one of its models."""


def _label(state: dict[str, Any]) -> str:
    return f"{state['channel']}/{state['account']}"


def _in_flight(state: AccountState) -> str:
    limit = state["concurrency"]
    return f"{state['under_way']} of {limit}" if limit else str(state["under_way"])


def _disabled(state: AccountState) -> str | None:
    if state["disabled_at"] is None:
        return None
    return f"{format_time(state['disabled_at'])} by {state['disabled_by']}"


def _tokens(result: dict[str, Any]) -> str | None:
    counts = (result["input_tokens"], result["output_tokens"])
    return "{} input, {} output".format(*("?" if count is None else count for count in counts))


def _reply(result: dict[str, Any]) -> str:
    text = " ".join(result["words"].split())
    return text or f"empty; it ended with {result['stop_reason']}"


_STATE_COLUMNS: Final[dict[str, Column]] = {
    "Account": _label,
    "Model": "model",
    "State": "state",
    "Until": lambda state: format_time(state["until"]),
    "Reason": "reason",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "In flight": _in_flight,
    "Last error": lambda state: shorten(state["error"]),
}
_REFUSES_COLUMN: Final[dict[str, Column]] = {
    "Refuses, for the file": lambda state: (
        refuses_line(state["refuses"]) if state.get("refuses") else None
    ),
}
_DISABLED_COLUMN: Final[dict[str, Column]] = {"Disabled": _disabled}
_TRY_COLUMNS: Final[dict[str, Column]] = {
    "Account": _label,
    "Model": "{model} ({upstream_model}, {format})".format_map,
    "Status": "status",
    "Duration": lambda result: format_duration(result["total_us"]),
}
_SUCCESS_COLUMNS: Final = _TRY_COLUMNS | {"Tokens": _tokens, "Reply": _reply}
_FAILURE_COLUMNS: Final = _TRY_COLUMNS | {
    "Failure": lambda result: (
        "{verdict} ({blame})".format_map(result) if result["verdict"] else None
    ),
    "Error": "error",
    "What to do": lambda result: result.get("hint"),
}

_ACCOUNT_NAME: Final = click.argument("name")


@click.group()
def account() -> None:
    """Show and change the state of the running gateway's accounts.

    NAME is channel/account, or only the account's name if it is unique.
    """


@subcommand(account)
def list_(context: CommandContext) -> None:
    """List all accounts, with each model that was requested from them."""
    with connect(context.state_dir, may_serve=False) as client:
        states = client.get("/accounts")["accounts"]
    is_any_disabled = any(state["disabled_at"] for state in states)
    columns = _STATE_COLUMNS | (_DISABLED_COLUMN if is_any_disabled else {})
    columns |= _REFUSES_COLUMN if any(state.get("refuses") for state in states) else {}
    context.print_table(states, columns)


@subcommand(account, _ACCOUNT_NAME)
def reset(context: CommandContext, name: str) -> None:
    """Reset an account to healthy; a disabled one stays disabled."""
    states = _change(context, name, "reset")
    disabled = any(state["state"] == "disabled" for state in states)
    _report(context, states, "is reset, but stays disabled" if disabled else "is healthy")


@subcommand(account, _ACCOUNT_NAME)
def disable(context: CommandContext, name: str) -> None:
    """Send no more requests to an account until it is enabled, also after restarts."""
    states = _change(context, name, "disable")
    _report(context, states, "is disabled; requests in flight continue")


@subcommand(account, _ACCOUNT_NAME)
def enable(context: CommandContext, name: str) -> None:
    """Use a disabled account again."""
    _report(context, _change(context, name, "enable"), "is enabled")


@subcommand(
    account,
    _ACCOUNT_NAME,
    click.option("--model", help="The model to request; default: the first of the channel."),
)
def try_(context: CommandContext, name: str, model: str | None) -> None:
    """Send one small real request to an account; a success resets it."""
    query = f"?model={quote_path(model)}" if model is not None else ""
    with connect(context.state_dir, may_serve=False) as client:
        result = client.post(f"{_path(client, name)}/try{query}", None)
    columns = _SUCCESS_COLUMNS if result["ok"] else _FAILURE_COLUMNS
    context.print(result, lambda _: print_record(result, columns))
    if not result["ok"]:
        sys.exit(1)


def _change(context: CommandContext, name: str, action: str) -> list[AccountState]:
    with connect(context.state_dir, may_serve=False) as client:
        states: list[AccountState] = client.put(f"{_path(client, name)}/{action}", None)["accounts"]
    return states


def _path(client: Client, name: str) -> str:
    """The account's path in the admin API. Raises CommandRefused with the existing accounts."""
    states: list[AccountState] = client.get("/accounts")["accounts"]
    accounts = list(dict.fromkeys((state["channel"], state["account"]) for state in states))
    matches = [account for account in accounts if name in ("/".join(account), account[1])]
    if len(matches) == 1:
        return "/accounts/" + "/".join(map(quote_path, matches[0]))
    if not accounts:
        raise CommandRefused("The running configuration has no accounts.")
    names = "\n".join("  " + "/".join(account) for account in matches or accounts)
    if matches:
        raise CommandRefused(f"{len(matches)} channels have an account {name}; use one of\n{names}")
    raise CommandRefused(f"There is no account {name}; the accounts are\n{names}")


def _report(context: CommandContext, states: list[AccountState], message: str) -> None:
    context.print_list(states, lambda _: print_note(f"{_label(states[0])} {message}."))
