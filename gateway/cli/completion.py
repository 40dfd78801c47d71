"""`gateway completion`: scripts that make shells complete commands and options."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

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
