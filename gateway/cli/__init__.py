"""The command line. It must not know what any command does: each noun is a file of its own,
imported only when it is called, so that `gateway --help` answers at once.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType
from typing import Final

import click

import gateway

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("gateway.cli.serve:serve", "Serve requests until told to stop."),
    "check": ("gateway.cli.check:check", "Say whether a configuration is right, or all mistakes."),
    "reload": ("gateway.cli.reload:reload", "Have the running gateway read its file again."),
    "key": ("gateway.cli.key:key", "Mint, change, rotate, list and revoke clients' keys."),
    "group": ("gateway.cli.group:group", "Say what the keys of a group reach, and how much."),
    "account": ("gateway.cli.account:account", "See, reset, disable and try upstream accounts."),
    "route": ("gateway.cli.route:route", "Say whom a request would reach, and why."),
    "usage": ("gateway.cli.usage:usage", "Add up what was used: by key, group, model, day."),
    "logs": ("gateway.cli.logs:logs", "Read the ledger: list, show, tail."),
    "admin": ("gateway.cli.admin:admin", "Set the console's password; see and end its sessions."),
    "db": ("gateway.cli.db:db", "Prove that the ledger's figures agree."),
}
"""Name → where the command is (`module:attribute`), and what it does in one line."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(_imported(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


def _imported(module: str) -> ModuleType:
    """Without the garbage collector, which takes a tenth of the time and finds next to nothing;
    later it need not walk over what was imported either."""
    if not gc.isenabled():
        return import_module(module)
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.enable()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gateway.__version__, prog_name="gateway")
def main() -> None:
    """One key, three wire formats, any model behind it."""
