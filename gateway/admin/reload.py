"""What a new configuration changes, in names, and what of it a running gateway cannot take.

It must not know a value: keys are among them.

Replaces the configuration of a running gateway by what its file says now: whole, or not at all.

It must not know who asked for it: a signal, a command, or the file by having changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from gateway.config import Config, ConfigError, ConfigProblem
from gateway.runtime import Runtime, unix_microseconds

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


log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class ConfigSource:
    """The file that a configuration comes from, and how it is read: `load` raises ConfigMistakes.
    Every `period` seconds somebody looks whether it has changed."""

    file: Path | None
    load: Callable[[], Config]
    poll_interval: float = 2.0
    _read: _Stamp | None = field(default=None, init=False)
    _seen: _Stamp | None = field(default=None, init=False)

    def read(self) -> Config:
        """What the file says now."""
        self._read = self._stamp()  # first: what is written meanwhile is seen as a change
        return self.load()

    def changed(self) -> bool:
        """Whether the file is another than the one that was read, and the same as at the last look:
        half of what is being written could be taken for a whole."""
        before, self._seen = self._seen, self._stamp()
        return self._seen == before != self._read

    def _stamp(self) -> _Stamp | None:
        with suppress(OSError):
            if self.file is not None:
                now = os.stat(self.file)
                return now.st_ino, now.st_size, now.st_mtime_ns
        return None


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """A reload that went well. `hash` is that of the configuration in force; `warnings` are
    sentences."""

    file: str
    hash: str
    changes: ConfigChanges
    warnings: tuple[str, ...]


class Reloader:
    """One gateway's configuration and the file it follows; one reload at a time."""

    def __init__(self, runtime: Runtime, source: ConfigSource) -> None:
        self._runtime = runtime
        self._source = source
        self._turn = asyncio.Lock()
        self._asked = asyncio.Event()

    def request_reload(self) -> None:
        """For a reload soon, while somebody is `following`; what comes of it is in the log."""
        self._asked.set()

    async def reload(self) -> ReloadResult:
        """Raises ConfigMistakes; then everything is as it was. Both are told in the log."""
        async with self._turn:
            try:
                config = await asyncio.to_thread(self._source.read)
                self._check(config)
            except ConfigError as found:
                self._runtime.config_error = _public_message(found)
                log.error("the configuration stays as it was, for its file is wrong:\n%s", found)
                raise
            reloaded = self._take(config)
        for warning in reloaded.warnings:
            log.warning(warning)
        what = str(reloaded.changes) or "nothing has changed"
        log.info("configuration %s is in force: %s", reloaded.hash, what)
        return reloaded

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Until the block ends, the file is read again when it has changed, and when asked."""
        task = asyncio.ensure_future(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _check(self, config: Config) -> None:
        """An empty file is right for a start, but a slip where requests are being served."""
        if self._runtime.config.channels and not config.channels:
            text = "none is left: a running gateway keeps those that it has"
            raise ConfigError([ConfigProblem("channels", str(self._source.file), 0, text)])

    def _take(self, config: Config) -> ReloadResult:
        runtime = self._runtime
        old = runtime.config
        config, fixed = keep_fixed_settings(config, old)
        if config != old:
            runtime.replace_config(config)
        runtime.loaded_at = unix_microseconds()
        runtime.config_error = None
        return ReloadResult(
            file=str(self._source.file),
            hash=runtime.current.hash,
            changes=compare_configs(old, config),
            warnings=(
                *config.warnings,
                *(f"{name} stays as it is until the gateway is started again." for name in fixed),
            ),
        )

    async def _follow(self) -> NoReturn:
        while True:
            asked = await self._asked_meanwhile()
            if self._source.changed() or asked:
                await self._try()

    async def _asked_meanwhile(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._source.poll_interval):
                await self._asked.wait()
        asked = self._asked.is_set()
        self._asked.clear()
        return asked

    async def _try(self) -> None:
        try:
            await self.reload()
        except ConfigError:
            return  # it is told
        except Exception:  # whatever it is, the file must go on being followed
            log.exception("the configuration stays as it was: its file could not be taken")


def _public_message(found: ConfigError) -> str:
    """Where the first mistake is and how many there are: probes show no key, so neither the texts
    nor the key paths, in which something misplaced may stand, nor the file's directory are theirs.
    """
    first, count = found.problems[0], len(found.problems)
    place = f"{Path(first.file).name}:{first.line}" if first.line else Path(first.file).name
    return f"{place}: {count} mistake{'s' if count > 1 else ''}, told in the log"
