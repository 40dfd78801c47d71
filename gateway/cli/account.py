"""`gateway account`: the state of upstream accounts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from gateway.admin.units import format_duration
from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import CommandRefused
from gateway.cli.options import CommandContext, with_context
from gateway.cli.output import (
    Cell,
    format_time,
    print_fields,
    print_note,
    print_table,
    shorten,
    style_state,
)

AccountState = dict[str, Any]
"""The state of an account with one of its models."""

_ACCOUNT_NAME: Final = click.argument("name")


@click.group()
def account() -> None:
    """Show and change the state of the running gateway's accounts.

    NAME is channel/account, or only the account's name if it is unique.
    """


@account.command(name="list")
@with_context
def list_(context: CommandContext) -> None:
    """List all accounts, with each model that was requested from them."""
    with connect(context.state_dir, may_serve=False) as client:
        states = client.get("/accounts")["accounts"]
    context.print(states, _print_states)


@account.command()
@_ACCOUNT_NAME
@with_context
def reset(context: CommandContext, name: str) -> None:
    """Reset an account to healthy; a disabled one stays disabled."""
    states = _change(context, name, "reset")
    disabled = any(state["state"] == "disabled" for state in states)
    _report(context, states, "is reset, but stays disabled" if disabled else "is healthy")


@account.command()
@_ACCOUNT_NAME
@with_context
def disable(context: CommandContext, name: str) -> None:
    """Send no more requests to an account until it is enabled or the gateway restarts."""
    states = _change(context, name, "disable")
    _report(context, states, "is disabled; requests in flight continue")


@account.command()
@_ACCOUNT_NAME
@with_context
def enable(context: CommandContext, name: str) -> None:
    """Use a disabled account again."""
    _report(context, _change(context, name, "enable"), "is enabled")


@account.command(name="try")
@_ACCOUNT_NAME
@click.option("--model", help="The model to request; default: the first of the channel.")
@with_context
def try_(context: CommandContext, name: str, model: str | None) -> None:
    """Send one small real request to an account; a success resets it."""
    query = f"?model={quote_path(model)}" if model is not None else ""
    with connect(context.state_dir, may_serve=False) as client:
        result = client.post(f"{_path(client, name)}/try{query}", None)
    context.print(result, lambda _: print_fields(_result_fields(result)))
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
    context.print(states, lambda _: print_note(f"{_label(states[0])} {message}."))


def _print_states(states: list[AccountState]) -> None:
    print_table(
        (
            *("Account", "Model", "State", "Until", "Reason"),
            *("Succeeded", "Failed", "In flight", "Last error"),
        ),
        (
            (
                _label(state),
                state["model"],
                style_state(state["state"]),
                format_time(state["until"]),
                state["reason"],
                state["succeeded"],
                state["failed"],
                _in_flight(state),
                shorten(state["error"]),
            )
            for state in states
        ),
    )


def _label(state: dict[str, Any]) -> str:
    return f"{state['channel']}/{state['account']}"


def _in_flight(state: AccountState) -> str:
    limit = state["concurrency"]
    return f"{state['under_way']} of {limit}" if limit else str(state["under_way"])


def _result_fields(result: dict[str, Any]) -> Iterator[tuple[str, Cell]]:
    yield "Account", _label(result)
    yield "Model", f"{result['model']} ({result['upstream_model']}, {result['format']})"
    yield "Status", result["status"]
    yield "Duration", format_duration(result["total_us"])
    if result["ok"]:
        tokens = (
            "?" if count is None else str(count)
            for count in (result["input_tokens"], result["output_tokens"])
        )
        yield "Tokens", "{} input, {} output".format(*tokens)
        reply = " ".join(result["words"].split())
        yield "Reply", reply or f"empty; it ended with {result['stop_reason']}"
    else:
        failure = f"{result['verdict']} ({result['blame']})" if result["verdict"] else None
        yield "Failure", failure
        yield "Error", result["error"]
