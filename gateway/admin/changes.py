"""What a new configuration changes, in names, and what of it a running gateway cannot take.

It must not know a value: keys are among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.config import Config

_SECTIONS: Final = (
    "server",
    "families",
    "rules",
    "affinity",
    "limits",
    "user_agents",
    "money",
    "logs",
)
_RESTART_ONLY: Final = ("host", "port", "max_body", "cors")
"""Options of `server` that the listening socket and its application were built with."""


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Each is a kind and a name, such as `account chat-main/a1`, or the name of a section."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = {"added": self.added, "removed": self.removed, "changed": self.changed}
        return "; ".join(f"{what} {', '.join(names)}" for what, names in told.items() if names)


def compare_configs(old: Config, new: Config) -> ConfigChanges:
    """What is in one and not in the other, or another in each."""
    before, now = _named_parts(old), _named_parts(new)
    return ConfigChanges(
        added=tuple(name for name in now if name not in before),
        removed=tuple(name for name in before if name not in now),
        changed=tuple(name for name in now if name in before and now[name] != before[name]),
    )


def keep_fixed_settings(new: Config, old: Config) -> tuple[Config, tuple[str, ...]]:
    """The new configuration with the old one's values where they count until the end, and the
    options that this concerns."""
    kept = {name: getattr(old.server, name) for name in _RESTART_ONLY}
    fixed = [f"server.{name}" for name in _RESTART_ONLY if getattr(new.server, name) != kept[name]]
    if new.state_dir != old.state_dir:
        fixed.append("state_dir")
    server = new.server.model_copy(update=kept)
    return new.model_copy(update={"server": server, "state_dir": old.state_dir}), tuple(fixed)


def _named_parts(config: Config) -> dict[str, object]:
    things: dict[str, object] = {name: getattr(config, name) for name in _SECTIONS}
    things |= {f"model {model.id}": model for model in config.models}
    for channel in config.channels:
        things[f"channel {channel.name}"] = channel.model_copy(update={"accounts": ()})
        for account in channel.accounts:
            things[f"account {channel.name}/{account.name}"] = account
    return things
