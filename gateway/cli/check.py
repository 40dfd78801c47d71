"""`gateway check`: is this configuration right? It must not start or call anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from gateway.cli.output import report_config_errors
from gateway.config import Config, find_config, load_config


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file and stop.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for scripts.")
def check(config: Path | None, schema: bool, as_json: bool) -> None:
    """Say whether a configuration is right, or everything that is wrong with it.

    Keys are looked up: every ${NAME} must be set, every file: must be there.
    """
    if schema:
        schema_of_file = Config.model_json_schema()
        click.echo(orjson.dumps(schema_of_file, option=orjson.OPT_INDENT_2))
        return
    path = find_config(config)
    with report_config_errors(as_json=as_json):
        found = load_config(path)
    if as_json:
        click.echo(orjson.dumps({"ok": True, "file": str(path), **_summary(found)}))
    else:
        _tell(str(path), found)


def _summary(config: Config) -> dict[str, Any]:
    channels = [
        {
            "name": channel.name,
            "format": channel.format,
            "base_url": channel.base_url,
            "models": list(channel.models),
            "accounts": len(channel.accounts),
        }
        for channel in config.channels
    ]
    return {
        "state_dir": str(config.state_dir),
        "models": len(config.models),
        "channels": channels,
        "warnings": config.warnings,
    }


def _tell(file: str, config: Config) -> None:
    for warning in config.warnings:
        click.echo(f"{file}: warning: {warning}", err=True)
    counts = f"channels: {len(config.channels)}, models: {len(config.models)}"
    click.echo(f"{file}: ok ({counts}, state in {config.state_dir})")
    if config.channels:
        # markup off: an address such as http://[::1]/v1 is no markup
        Console(markup=False, emoji=False, highlight=False).print(_table(config))


def _table(config: Config) -> Table:
    table = Table("Channel", "Format")
    table.add_column("Base address", overflow="fold")
    table.add_column("Models", overflow="fold")
    table.add_column("Accounts", justify="right")
    for channel in config.channels:
        models = ", ".join(channel.models)
        accounts = str(len(channel.accounts))
        table.add_row(channel.name, channel.format, channel.base_url, models, accounts)
    return table
