"""`gateway route`: explains the routing of a request, without sending one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import orjson
from click.core import ParameterSource

from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import CommandRefused, GatewayUnreachable, report_config_errors
from gateway.cli.key import effective_state, find_key
from gateway.cli.options import CommandContext, with_context
from gateway.cli.output import print_note, print_tree
from gateway.config.load import load_config
from gateway.core.formats import Format

Preview = dict[str, Any]
"""A route preview as the admin API returns it."""


@click.command()
@click.option("--key", "key", metavar="ID|NAME", help="Route for this key.")
@click.option("--group", help="Route for keys of this group; default: all models are allowed.")
@click.option("--model", required=True, help="The model that the client requests.")
@click.option(
    "--format",
    "client_format",
    type=click.Choice([each.value for each in Format]),
    required=True,
    help="The format of the client.",
)
@with_context
def route(
    context: CommandContext, key: str | None, group: str | None, model: str, client_format: str
) -> None:
    """Explain routing: the candidates in order, with reasons. No request is sent.

    The running gateway answers, with the current states of its accounts. With --config only the
    file is used, with or without a running gateway, as if all accounts were healthy.
    """
    if key is not None and group is not None:
        raise click.UsageError("A key has a group: use either --key or --group.")
    source = click.get_current_context().get_parameter_source("config")
    if source is ParameterSource.COMMANDLINE:
        preview = _preview_file(context, key, group, model, Format(client_format))
    else:
        preview = _preview_gateway(context, key, group, model, client_format)
    context.print(preview, lambda _: print_tree(_headline(preview), _branches(preview)))
    if preview["status"] is not None:
        sys.exit(1)


def _preview_gateway(
    context: CommandContext, key: str | None, group: str | None, model: str, client_format: str
) -> Preview:
    try:
        with connect(context.state_dir, may_serve=False) as client:
            group = _group_of(client, key) if key is not None else group
            preview: Preview = client.get("/route", group=group, model=model, format=client_format)
    except GatewayUnreachable as error:
        raise GatewayUnreachable(f"{error.message} To use a file instead: --config FILE") from None
    return preview


def _preview_file(
    context: CommandContext, key: str | None, group: str | None, model: str, client_format: Format
) -> Preview:
    # Imported here: it is most of the command's start time, and not needed with a gateway.
    from gateway.admin.route_preview import ALL_MODELS, AccountStates, preview_route
    from gateway.routing.catalog import Catalog
    from gateway.routing.router import Router

    with report_config_errors():
        config = load_config(context.config, state_dir=context.state_dir, resolve_secrets=False)
    patterns: Sequence[str] = ALL_MODELS
    if key is not None or group is not None:
        with connect(context.state_dir, context.config) as client:
            name = _group_of(client, key) if key is not None else group
            patterns = client.get(f"/groups/{quote_path(name or '')}")["patterns"]
    catalog = Catalog(config.models)
    router = Router(catalog, config.channels, config.families)
    preview = preview_route(
        config, catalog, router, patterns, model, client_format, AccountStates()
    )
    print_note(f"From {context.config}, assuming that all accounts are healthy.")
    answer: Preview = orjson.loads(orjson.dumps(preview))
    return answer


def _group_of(client: Client, reference: str) -> str:
    """The group of a key; notes what else restricts the key."""
    key = find_key(client, reference)
    label = f"{key['name']} ({key['id']})"
    if (state := effective_state(key)) in ("disabled", "revoked", "expired"):
        raise CommandRefused(f"{label} is {state}: its requests get a 401.")
    if state != "active":
        print_note(f"{label}: {state}, so its requests are refused.")
    if key["models"] is not None:
        print_note(f"{label} is restricted to {' '.join(key['models'])}; other models get a 403.")
    if key["probe"]:
        print_note(f"{label} is a health-check key: this request gets a 403.")
    return str(key["group"])


def _headline(preview: Preview) -> str:
    if preview["status"] is None:
        return str(preview["decision"])
    return f"{preview['decision']} The client would get {preview['status']}: {preview['message']}"


def _branches(preview: Preview) -> Iterator[tuple[str, Sequence[str]]]:
    for candidate in preview["candidates"]:
        number = f"{candidate['turn']}. " if candidate["turn"] is not None else "-  "
        name = f"{candidate['channel']}/{candidate['account']}"
        verdict, *reasons = candidate["why"]
        branch = f"{number}{name} for {candidate['upstream_model']}: {verdict}."
        yield branch, [f"{reason}." for reason in reasons]
    for excluded in preview["others"]:
        yield f"-  {excluded['channel']}: {excluded['why']}.", ()
