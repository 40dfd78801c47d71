"""`gateway responses`: the responses that clients can continue by their ids."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.cli.client import connect, quote_path
from gateway.cli.key import find_key, key_names
from gateway.cli.options import CommandContext, limit_option, subcommand
from gateway.cli.output import Column, Record, print_note, print_record, print_table
from gateway.core.text import escape_json

_ID: Final = click.argument("response_id", metavar="ID")


def _columns(names: dict[str, str]) -> dict[str, Column]:
    return {
        "ID": "id",
        "Key": lambda reply: names.get(reply["token_id"], reply["token_id"]),
        "Created": "created_at",
        "Model": "model",
        "Status": _status,
        "Continues": lambda reply: reply["previous_id"] or "",
        "Bytes": "stored_size",
        "Expires": "expires_at",
    }


def _details(names: dict[str, str]) -> dict[str, Column]:
    return _columns(names) | {
        "Request": "request_id",
        "Format": "format",
        "First of its chain": "root_id",
        "Request bytes": "request_size",
        "Reply bytes": "reply_size",
    }


def _status(reply: Record) -> str:
    status = "deleted" if reply["deleted"] else str(reply["status"])
    return f"{status} (background)" if reply["background"] else status


@click.group()
def responses() -> None:
    """Manage stored responses, which clients continue by previous_response_id."""


@subcommand(
    responses,
    click.option("--key", "reference", metavar="KEY", help="Only of one key: its id or name."),
    limit_option,
    click.option("--before", metavar="ID", help="Only older responses: the next page."),
)
def list_(context: CommandContext, reference: str | None, limit: int, before: str | None) -> None:
    """List stored responses, newest first.

    A deleted one is listed as long as others continue it.
    """
    with connect(context.state_dir, context.config) as client:
        token_id = find_key(client, reference)["id"] if reference is not None else None
        found = client.get("/responses", token_id=token_id, limit=limit, before=before)["responses"]
        names = key_names(client)
    older = found[-1]["id"] if len(found) == limit else None
    context.print_table(found, _columns(names), next_=older)


@subcommand(
    responses, _ID, click.option("--texts", is_flag=True, help="With the request and the reply.")
)
def show(context: CommandContext, response_id: str, texts: bool) -> None:
    """Show a stored response and the others of its chain."""
    with connect(context.state_dir, context.config) as client:
        query = {"texts": "true"} if texts else {}
        reply = client.get(f"/responses/{quote_path(response_id)}", **query)
        names = key_names(client)
    context.print(reply, lambda _: _print_details(reply, names))


def _print_details(reply: Record, names: dict[str, str]) -> None:
    print_record(reply, _details(names))
    chain: list[Any] = reply["chain"]
    if len(chain) > 1:
        print_note(f"Its chain, {len(chain)} responses:")
        print_table(chain, _columns(names))
    for name in ("request", "reply"):
        if reply.get(name) is not None:
            print_note(f"{name.capitalize()}:")
            click.echo(escape_json(reply[name].encode()))


@subcommand(responses, _ID, json=False)
def delete(context: CommandContext, response_id: str) -> None:
    """Delete a stored response.

    What others continue of it stays part of their conversations.
    """
    with connect(context.state_dir, context.config) as client:
        client.delete(f"/responses/{quote_path(response_id)}")
    print_note(f"Deleted response {response_id}.")
