"""`gateway route`: whom a request would reach, and why. It must not know how that is decided, and
sends nothing to anybody upstream.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import orjson
from click.core import ParameterSource

from gateway.cli.client import Client, CommandRefused, GatewayUnreachable, connect, quote_path
from gateway.cli.find_key import effective_state, find_key
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import print_json, print_note, print_tree, report_config_errors
from gateway.config import load_config
from gateway.core.formats import Format

Answer = dict[str, Any]


@click.command()
@click.option("--key", "key", metavar="ID|NAME", help="Whose request: a key's id or name.")
@click.option("--group", help="The same by the name of a group; without either, every model.")
@click.option("--model", required=True, help="The model as a client names it.")
@click.option(
    "--format",
    "spoken",
    type=click.Choice([each.value for each in Format]),
    required=True,
    help="The format in which the client asks.",
)
@with_json
@with_location
def route(
    place: Location, key: str | None, group: str | None, model: str, spoken: str, as_json: bool
) -> None:
    """Say who would be asked for a model, in which order, and why; nothing is sent.

    The running gateway tells, and knows how its accounts are. With --config the file alone tells,
    whether a gateway runs or not, as if all accounts were well.
    """
    if key is not None and group is not None:
        raise click.UsageError("--key has a group of its own: name one or the other.")
    source = click.get_current_context().get_parameter_source("config")
    if source is ParameterSource.COMMANDLINE:
        told = _by_file(place, key, group, model, Format(spoken))
    else:
        told = _by_gateway(place, key, group, model, spoken)
    if as_json:
        print_json(told)
    else:
        print_tree(_opening(told), _branches(told))
    if told["status"] is not None:
        sys.exit(1)


def _by_gateway(
    place: Location, key: str | None, group: str | None, model: str, spoken: str
) -> Answer:
    try:
        with connect(place.state_dir, may_serve=False) as client:
            name = _group(client, key, group)
            told: Answer = client.get("/route", group=name, model=model, format=spoken)
    except GatewayUnreachable as error:
        hint = "What a file says can be asked without it: name the file with --config."
        raise GatewayUnreachable(f"{error.message} {hint}") from None
    return told


def _by_file(
    place: Location, key: str | None, group: str | None, model: str, spoken: Format
) -> Answer:
    # Imported here: with a gateway to ask, this is all of a command's start.
    from gateway.admin.route_preview import ALL_MODELS, HealthView, preview_route
    from gateway.routing.catalog import Catalog
    from gateway.routing.router import Router

    with report_config_errors():
        config = load_config(place.config, state_dir=place.state_dir, resolve_secrets=False)
    patterns: Sequence[str] = ALL_MODELS
    if key is not None or group is not None:
        with connect(place.state_dir) as client:
            name = _group(client, key, group)
            patterns = client.get(f"/groups/{quote_path(name or '')}")["patterns"]
    catalog = Catalog(config.models)
    router = Router(catalog, config.channels, config.families)
    told = preview_route(config, catalog, router, patterns, model, spoken, HealthView())
    print_note(f"As {place.config} says; how the accounts are is not known.")
    answer: Answer = orjson.loads(orjson.dumps(told))
    return answer


def _group(client: Client, key: str | None, group: str | None) -> str | None:
    if key is None:
        return group
    found = find_key(client.get("/keys")["keys"], key)
    if (state := effective_state(found)) != "active":
        raise CommandRefused(f"{found['name']} ({found['id']}) is {state}: its requests get a 401.")
    if found["models"] is not None:
        allowed = " ".join(found["models"])
        print_note(f"Of its group, {found['name']} may use {allowed} only; all else gets a 403.")
    if found["probe"]:
        print_note(f"{found['name']} is a probe: whatever it would reach, it gets a 403.")
    name: str = found["group"]
    return name


def _opening(told: Answer) -> str:
    if told["status"] is None:
        return str(told["decision"])
    return f"{told['decision']} The client would get {told['status']}: {told['message']}"


def _branches(told: Answer) -> Iterator[tuple[str, Sequence[str]]]:
    for stop in told["candidates"]:
        turn = f"{stop['turn']}. " if stop["turn"] is not None else "-  "
        verdict, *more = stop["why"]
        who = f"{stop['channel']}/{stop['account']} for {stop['upstream_model']}"
        yield f"{turn}{who}: {verdict}.", [f"{each}." for each in more]
    for stranger in told["others"]:
        yield f"-  {stranger['channel']}: {stranger['why']}.", ()
