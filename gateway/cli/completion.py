"""`gateway completion`: scripts that make shells complete commands, options and names.

Names of keys, groups, accounts, channels and models are those of the running gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from gateway.cli.client import Client, connect
from gateway.config.document import ConfigError
from gateway.config.locate import find_config, find_state_dir

_MOST: Final = 200
"""Names that a shell gets."""
_TIMEOUT: Final = 2.0  # seconds


def _names(path: str, items: str, name: str, **query: str) -> Callable[[Client], Iterable[str]]:
    """Reads the names of a list of the admin API; `name` is a template of an item's fields."""

    def read(client: Client) -> Iterable[str]:
        answer = client.get(path, **query)
        return map(name.format_map, answer.get("config", answer)[items])

    return read


_KEYS: Final = _names("/keys", "keys", "{name}")
_GROUPS: Final = _names("/groups", "groups", "{name}")
_ACCOUNTS: Final = _names("/accounts", "accounts", "{channel}/{account}")
_CHANNELS: Final = _names("/config", "channels", "{name}")
_MODELS: Final = _names("/config", "models", "{id}", all="true")
_SOURCES: Final[Mapping[str, Callable[[Client], Iterable[str]]]] = {
    **dict.fromkeys(("reference", "key"), _KEYS),
    **dict.fromkeys(("group", "group_name"), _GROUPS),
    **dict.fromkeys(("account", "account name"), _ACCOUNTS),
    **dict.fromkeys(("channel", "channels"), _CHANNELS),
    **dict.fromkeys(("model", "models"), _MODELS),
    "token reference": _names("/tokens", "tokens", "{name}"),
}
"""Parameter → the names that it takes. `name` means another thing in every group of commands."""


class _Name(click.types.StringParamType):
    """A text of which the running gateway knows the possible ones."""

    def __init__(self, source: Callable[[Client], Iterable[str]]) -> None:
        self._source = source

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Nothing without a gateway: a shell shows no errors."""
        with suppress(click.ClickException, ConfigError, LookupError):
            config = find_config(ctx.params.get("config"))
            state_dir = find_state_dir(ctx.params.get("state_dir"), config)
            with connect(state_dir, may_serve=False, timeout=_TIMEOUT) as client:
                names = sorted(each for each in self._source(client) if each.startswith(incomplete))
            return [CompletionItem(each) for each in dict.fromkeys(names[:_MOST])]
        return []


def complete_names(command: click.Command, group: str = "") -> None:
    """Makes the parameters of a command, and of those in it, complete names."""
    for parameter in command.params:
        name = parameter.name or ""
        source = _SOURCES.get(f"{group} {name}") or _SOURCES.get(name)
        if source is not None and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = _Name(source)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            complete_names(each, command.name or "")


_SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and names in a shell.

    For all users, or for yourself:

    \b
        gateway completion bash > /usr/share/bash-completion/completions/gateway
        gateway completion zsh > /usr/share/zsh/vendor-completions/_gateway
        gateway completion fish > /usr/share/fish/vendor_completions.d/gateway.fish
        eval "$(gateway completion bash)"           # in ~/.bashrc; zsh in ~/.zshrc
    """
    from gateway.cli import main

    script = _SHELLS[shell](main, {}, "gateway", "_GATEWAY_COMPLETE")
    click.echo(script.source(), nl=False)
