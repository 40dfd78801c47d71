"""`gateway connect`: prints the settings of a client, or writes them into its own file."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.admin.client_settings import settings_of, usable_models
from gateway.cli.connect.settings_file import backup_of, insert, undo_settings, write_settings
from gateway.cli.errors import CommandRefused, report_config_errors
from gateway.cli.options import CommandContext, option_type, with_context
from gateway.cli.output import print_note
from gateway.config.file_errors import file_error_reason
from gateway.config.load import demo_config, load_config
from gateway.config.types import check_url
from gateway.core.formats import Family
from gateway.doctor.clients.profile import CLIENTS
from gateway.doctor.network import address_of
from gateway.routing.catalog import Catalog
from gateway.routing.router import Router


@click.command()
@click.argument("client", type=click.Choice(CLIENTS))
@click.option("--model", help="The model to use; default: the first that suits the client.")
@click.option(
    "--base-url",
    type=option_type(lambda text: check_url(text).removesuffix("/v1"), optional=False),
    metavar="URL",
    help="The gateway's address, if not that of the configuration.",
)
@click.option("--write", is_flag=True, help="Put the settings into the client's own file.")
@click.option("--undo", is_flag=True, help="Take them out again: the file is as it was.")
@with_context
def connect(
    context: CommandContext, client: str, model: str | None, base_url: str | None, **how: bool
) -> None:
    """Print what to paste so that a client uses this gateway.

    The key is always in the variable GATEWAY_KEY, never in these settings. --write works for
    claude-code, codex and opencode: what else their file has stays, and a backup is beside it.
    """
    if how["write"] and how["undo"]:
        raise click.UsageError("Use either --write or --undo.")
    if model is not None and not (model and model.isprintable()):
        raise click.BadParameter("must be the name of a model", param_hint="--model")
    to = ("", "", "") if how["undo"] else _connection(context, client, model, base_url)
    settings = settings_of(client, *to)
    file = Path.home() / settings.file
    report = {"client": client, "file": str(file) if settings.file else None}
    if not any(how.values()):
        text = settings.exports() or insert(file, settings.content).decode().rstrip()
        report |= {"base_url": to[0], "model": to[1], "settings": text, "start": settings.start}
        context.print(report, lambda _: click.echo(text))
        place = "your shell" if settings.variables else file
        print_note(f"Paste this into {place}. The shell needs GATEWAY_KEY. Then: {settings.start}")
        return
    if not settings.file:
        raise CommandRefused(f"{client} has no file: paste what gateway connect {client} prints.")
    try:
        change = undo_settings if how["undo"] else write_settings
        is_changed = change(file, settings.content)
    except OSError as error:
        raise CommandRefused(f"Cannot use {file}: {file_error_reason(error, file)}.") from None
    state = ("restored" if how["undo"] else "written") if is_changed else "unchanged"
    context.print(report | {"state": state}, lambda _: click.echo(f"{file}: {state}"))
    if how["write"]:
        rest = settings.exports(beside_file=True)
        lines = f", and:\n{rest}\n" if rest else ". "
        print_note(f"As it was: {backup_of(file)}; gateway connect {client} --undo restores it.")
        print_note(f"The shell needs GATEWAY_KEY{lines}Then: {settings.start}")


def _connection(
    context: CommandContext, client: str, name: str | None, base_url: str | None
) -> tuple[str, str, str]:
    """The address, the model and the cheapest of its family; what the options leave open is of the
    configuration, without one of the demo."""
    if context.config is not None:
        with report_config_errors(as_json=context.as_json):
            config = load_config(context.config, state_dir=context.state_dir, resolve_secrets=False)
    elif name is not None and base_url is not None:
        return base_url, name, name
    else:
        config = demo_config(1, Path("var"))
        print_note("No configuration: what --base-url and --model leave open is of the demo.")
    address = base_url or config.server.public_url
    if address is None and config.server.port == 0:
        raise click.UsageError("server.port is 0, any free one: give --base-url.")
    address = address or address_of(config.server)
    catalog = Catalog(config.models)
    active = usable_models(catalog, Router(catalog, config.channels, config.families))
    if name is None:
        if not active:
            raise click.UsageError("No channel has a model: give --model.")
        family = Family.ALPHA if client in ("claude-code", "anthropic") else Family.BETA
        name = next((each.id for each in active if each.family is family), active[0].id)
    model = catalog.resolve(name)
    family_of = [each for each in active if model is not None and each.family is model.family]
    # Of several that cost the same, the model itself.
    small = min(family_of, key=lambda each: (each.multiplier, each is not model), default=None)
    return address, name, name if small is None else small.id
