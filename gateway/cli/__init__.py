"""The command line. Each command is imported only when it is called, so that `gateway --help` is
fast.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import click

import gateway

COMMANDS: Final[dict[str, str]] = {
    "init": "Write a first configuration.",
    "serve": "Serve requests.",
    "check": "Validate a configuration and list its errors.",
    "reload": "Reload the configuration of the running gateway.",
    "config": "Show the effective configuration; compare and restore earlier files.",
    "connect": "Print or write the settings of a client.",
    "key": "Create, change, rotate, list and revoke keys.",
    "group": "Manage groups of keys: models, price, limits.",
    "account": "List, reset, disable and try upstream accounts.",
    "doctor": "Check the installation, its upstreams and what clients need.",
    "route": "Explain the routing of a request.",
    "prices": "Bring the prices of models from a list that is kept offline.",
    "usage": "Report usage by key, group, model, day or hour.",
    "reconcile": "Explain what a vendor bills and the request log does not say.",
    "budgets": "List the budgets of keys and groups, and what is spent of them.",
    "logs": "Read the request log: list, show, export, tail.",
    "responses": "List, show and delete stored responses.",
    "alerts": "List alerts that fire; test the webhooks.",
    "replicas": "List the replicas on the same database server.",
    "admin": "Manage admins, sessions and admin tokens; read the audit log.",
    "db": "Back up, restore, migrate and verify the database.",
    "completion": "Print the completion script of a shell.",
}
"""Name → help. The command is the attribute NAME of the module `gateway.cli.NAME`."""


_SYNONYMS: Final = {
    **dict.fromkeys(("create", "add", "new"), ("mint", "add")),
    **dict.fromkeys(("delete", "remove", "rm"), ("revoke", "remove")),
    **dict.fromkeys(("change", "edit", "update"), ("set",)),
    **dict.fromkeys(("get", "info", "describe"), ("show",)),
    "ls": ("list",),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_quickly(f"gateway.cli.{cmd_name}"), cmd_name)
        if ctx.resilient_parsing:  # a shell completes a line
            import_quickly("gateway.cli.completion").complete_names(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests names of commands, which the class itself takes from imported ones."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Suggests what a usual name is here: by its letters, `create` is next to `rotate`. Other
        errors than click's are one line; Python's own `-X dev` shows their tracebacks."""
        try:
            return super().invoke(ctx)
        except click.NoSuchCommand as error:
            group = error.ctx.command if error.ctx is not None else self
            names = group.commands if isinstance(group, click.Group) else {}
            for name in _SYNONYMS.get(error.command_name, ()):
                if name in names:
                    text = f"No such command {error.command_name!r}. Did you mean {name!r}?"
                    raise click.NoSuchCommand(error.command_name, text, ctx=error.ctx) from None
            raise
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise  # click ends quietly where nobody reads the output
        except Exception as error:
            if sys.flags.dev_mode:
                raise
            raise import_quickly("gateway.cli.errors").explain(error, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def import_quickly(module: str) -> ModuleType:
    """Imports without garbage collection, which takes a tenth of the time and frees almost
    nothing; later collections skip the imported objects. Only then: other objects of a process that
    calls several commands would never be freed."""
    if module in sys.modules or not gc.isenabled():
        return import_module(module)
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _print_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        commit = gateway.commit()
        click.echo(f"gateway {gateway.__version__}" + (f" ({commit})" if commit else ""))
        ctx.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and the commit.",
)
def main() -> None:
    """A gateway to language models: one key, three wire formats, any model."""
