"""Reloads the configuration of a running gateway from its file: all of it, or nothing."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    nullcontext,
    suppress,
)
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from gateway.admin.access.audit import Audit
from gateway.admin.access.permissions import FILE_WATCHER, SIGNAL, acting_as, current_actor
from gateway.admin.config_history import ConfigHistory
from gateway.config.document import ConfigError, ConfigProblem
from gateway.config.locate import read_file
from gateway.config.masking import public_config
from gateway.config.schema import Config
from gateway.routing.catalog import Catalog
from gateway.runtime import Runtime, unix_microseconds
from gateway.scheduler import running

_SECTIONS: Final = (
    *("server", "families", "rules", "affinity"),
    *("limits", "user_agents", "money", "logs", "alerts", "metrics"),
)
_RESTART_ONLY: Final = ("host", "port", "max_body", "cors")
"""Options of `server` that the listener and its application are built with."""

log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Names without values, which can be secret: of a section, or a kind and a name, such as
    `account chat-main/a1`."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = {"added": self.added, "removed": self.removed, "changed": self.changed}
        return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """`hash` is that of the active configuration; `warnings` are sentences."""

    file: str
    hash: str
    changes: ConfigChanges
    warnings: tuple[str, ...]


@dataclass(slots=True)
class ConfigSource:
    """The file of a configuration, and the function that loads it, which raises ConfigError. The
    file is checked for changes every `poll_interval` seconds. `check` loads a text that the file
    does not have yet; without it the gateway does not write the file."""

    file: Path | None
    load: Callable[[], Config]
    poll_interval: float = 2.0
    check: Callable[[bytes], Config] | None = None
    _loaded: _Stamp | None = field(default=None, init=False)
    _polled: _Stamp | None = field(default=None, init=False)

    def read(self) -> Config:
        self._loaded = self._stamp()  # first, so that a write meanwhile counts as a change
        return self.load()

    def accepted(self) -> bytes | None:
        """The content of the file, if it is still what was loaded."""
        with suppress(ConfigError):
            if self.file is not None:
                content, _ = read_file(self.file)
                return content if self._stamp() == self._loaded else None
        return None

    def changed(self) -> bool:
        """Whether the file differs from the loaded one and was the same at the previous check: it
        could be half written."""
        previous, self._polled = self._polled, self._stamp()
        return self._polled == previous != self._loaded

    def _stamp(self) -> _Stamp | None:
        with suppress(OSError):
            if self.file is not None:
                status = os.stat(self.file)
                return status.st_ino, status.st_size, status.st_mtime_ns
        return None


class Reloader:
    """Reloads one configuration, one reload at a time."""

    def __init__(
        self,
        runtime: Runtime,
        source: ConfigSource,
        on_config: Callable[[Config], None] | None = None,
        audit: Audit | None = None,
        history: ConfigHistory | None = None,
        build_catalog: Callable[[Config], Catalog] = Catalog.of,
    ) -> None:
        """`on_config` is called with each valid configuration before it is applied, and
        `build_catalog` in a thread; `history` gets what was accepted."""
        self.announce: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered for the time of each reload."""
        self.editing = asyncio.Lock()
        """Held while the gateway writes the file."""
        self.file = None if source.file is None else str(source.file.absolute())
        self.source = source
        self.history = history
        self._runtime = runtime
        self._audit = audit
        self._on_config, self._build_catalog = on_config, build_catalog
        self._lock = asyncio.Lock()
        self._requested = asyncio.Event()

    def request_reload(self) -> None:
        """Reloads soon, if `watch` runs; the result is logged."""
        self._requested.set()

    def describe(self, with_defaults: bool) -> dict[str, Any]:
        """The active configuration, without secrets."""
        current = self._runtime.current
        config = public_config(current.config, with_defaults=with_defaults)
        return {"file": self.file, "hash": current.hash, "config": config}

    async def reload(self, cause: str = "reload") -> ReloadResult:
        """Raises ConfigError, which changes nothing. Both results are logged, and audited. `cause`
        is that of the snapshot."""
        try:
            result = await self._reload(cause)
        except ConfigError as error:
            await self._record({"ok": False, "error": _public_message(error)})
            raise
        changes = {name: names for name, names in asdict(result.changes).items() if names}
        await self._record({"ok": True, "hash": result.hash, **changes})
        return result

    async def _record(self, after: dict[str, Any]) -> None:
        if self._audit is not None:
            await self._audit.record("config.reload", after=after)

    async def keep_snapshot(self, cause: str, changes: str = "") -> None:
        """Adds the active configuration to the history. That never fails a reload."""
        file, history = self.file, self.history
        content = await asyncio.to_thread(self.source.accepted)
        if history is None or file is None or content is None:
            return
        actor, at = current_actor().name, unix_microseconds()
        try:
            await asyncio.to_thread(
                lambda: history.add(content, file, at=at, actor=actor, cause=cause, changes=changes)
            )
        except OSError as error:
            log.warning("the history of the configuration lacks this one: %s", error)

    async def _reload(self, cause: str) -> ReloadResult:
        async with self._lock:
            with self.announce():
                result = await self._replace()
            await self.keep_snapshot(cause, str(result.changes) or "only the text")
        for warning in result.warnings:
            log.warning(warning)
        log.info("configuration %s is active: %s", result.hash, str(result.changes) or "unchanged")
        return result

    async def _replace(self) -> ReloadResult:
        try:
            config = await asyncio.to_thread(self.source.read)
            self._check_channels(config)
            catalog = await asyncio.to_thread(self._build_catalog, config)
        except ConfigError as error:
            self._runtime.config_error = _public_message(error)
            for problem in error.problems:
                log.error("the configuration is unchanged: %s", problem)
            raise
        return self._apply(config, catalog)

    def watch(self) -> AbstractAsyncContextManager[None]:
        """Reloads when the file has changed, and when requested, for the time of the block."""
        return running(self._watch())

    def _check_channels(self, config: Config) -> None:
        """An empty file is valid at the start, but a mistake while requests are being served."""
        if self._runtime.config.channels and not config.channels:
            text = "empty: a running gateway keeps its channels"
            raise ConfigError([ConfigProblem("channels", str(self.source.file), 0, text)])

    def _apply(self, config: Config, catalog: Catalog) -> ReloadResult:
        runtime = self._runtime
        old = runtime.config
        config, fixed = keep_fixed_settings(config, old)
        if self._on_config is not None:
            self._on_config(config)
        if config != old:
            runtime.replace_config(config, catalog)
        runtime.loaded_at = unix_microseconds()
        runtime.config_error = None
        return ReloadResult(
            file=str(self.source.file),
            hash=runtime.current.hash,
            changes=compare_configs(old, config),
            warnings=(
                *config.warnings,
                *(f"{name} stays unchanged until a restart." for name in fixed),
            ),
        )

    async def _watch(self) -> NoReturn:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.source.poll_interval):
                    await self._requested.wait()
            requested = self._requested.is_set()
            self._requested.clear()
            if self.source.changed() or requested:
                try:
                    with acting_as(SIGNAL if requested else FILE_WATCHER):
                        await self.reload()
                except ConfigError:
                    continue  # logged
                except Exception:  # keep watching
                    log.exception("the configuration is unchanged, because its reload failed")


def compare_configs(old: Config, new: Config) -> ConfigChanges:
    before, after = _named_parts(old), _named_parts(new)
    return ConfigChanges(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(n for n in after if n in before and after[n] != before[n]),
    )


def keep_fixed_settings(new: Config, old: Config) -> tuple[Config, tuple[str, ...]]:
    """The new configuration with the old values of settings that need a restart, and the names of
    those that differ."""
    kept = {name: getattr(old.server, name) for name in _RESTART_ONLY}
    fixed = [f"server.{name}" for name in _RESTART_ONLY if getattr(new.server, name) != kept[name]]
    whole = {name: getattr(old, name) for name in ("state_dir", "traces")}
    fixed += [name for name, value in whole.items() if getattr(new, name) != value]
    server = new.server.model_copy(update=kept)
    return new.model_copy(update={"server": server, **whole}), tuple(fixed)


def _named_parts(config: Config) -> dict[str, object]:
    parts: dict[str, object] = {name: getattr(config, name) for name in _SECTIONS}
    parts |= {f"model {model.id}": model for model in config.models}
    for channel in config.channels:
        parts[f"channel {channel.name}"] = channel.model_copy(update={"accounts": ()})
        for account in channel.accounts:
            parts[f"account {channel.name}/{account.name}"] = account
    return parts


def _public_message(error: ConfigError) -> str:
    """The place of the first problem and the number of problems. Health checks need no key, so
    texts, key paths (which can contain misplaced secrets) and directories stay in the log."""
    first, count = error.problems[0], len(error.problems)
    name = Path(first.file).name
    place = f"{name}:{first.line}" if first.line else name
    return f"{place}: {count} error{'s' if count > 1 else ''}, see the process log"
