"""`gateway serve`: runs the gateway until SIGTERM or SIGINT; SIGHUP reloads its configuration."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import Final, NoReturn

import click
from aiohttp import web

from gateway.admin.reload import ConfigSource
from gateway.admin.socket_path import AdminSocketError, socket_path
from gateway.cli.errors import EX_CONFIG, EX_UNAVAILABLE, report_config_errors
from gateway.config.load import demo_config, load_config
from gateway.config.locate import find_config
from gateway.config.schema import Config
from gateway.config.types import check_host
from gateway.daemon import Daemon, run_daemon, systemd_notifications
from gateway.server.http.listener import BindError
from gateway.server.http.systemd import ActivationError, inherited_sockets
from gateway.store.errors import RowsLost, ServerUnavailable, StateLocked, StoreError
from gateway.store.sqlite.lock import DEMO_NAME, LOCK_NAME, lock_state_dir
from gateway.telemetry.process_log import ProcessLog, log_to_stderr

_DEMO_HELP: Final = """\
A gateway with a simulated model is serving on {address}

# chat-completions
curl -N {address}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -H 'authorization: Bearer {key}' \\
  -d '{{"model": "beta-5.4", "stream": true,
       "messages": [{{"role": "user", "content": "Hello!"}}]}}'

# messages
curl -N {address}/v1/messages \\
  -H 'content-type: application/json' \\
  -H 'x-api-key: {key}' \\
  -H 'anthropic-version: 2023-06-01' \\
  -d '{{"model": "alpha-sonnet-4-6", "max_tokens": 200, "stream": true,
       "messages": [{{"role": "user", "content": "Hello!"}}]}}'

# responses
curl -N {address}/v1/responses \\
  -H 'content-type: application/json' \\
  -H 'authorization: Bearer {key}' \\
  -d '{{"model": "beta-5.4", "stream": true, "input": "Hello!"}}'

base address for chat and responses clients: {address}/v1
base address for messages clients:           {address}
key: {key}

console: {address}/console  password for this run: {password}

Request log: {executable} logs list --state-dir {state_dir}
Another key: {executable} key mint --name me --state-dir {state_dir}
Ctrl-C stops it. The next demo begins anew: keys and log of this one are deleted.
"""


def _executable() -> str:
    """Tells how to call this gateway, which may not be on the PATH."""
    path = Path(sys.argv[0])
    return os.path.relpath(path) if path.name == "gateway" else "python -m gateway"


_PATH: Final = click.Path(path_type=Path, readable=False)
"""Whoever reads it says why it cannot be read."""

_DEMO_STATE_DIR: Final = Path("var", DEMO_NAME)

_DEMO_MARKER: Final = "demo"
"""A file in state directories that a demo created. A demo may empty only these."""

log = logging.getLogger(__name__)


def _checked_host(_: click.Context, __: click.Parameter, host: str | None) -> str | None:
    try:
        return None if host is None else check_host(host)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--config", type=_PATH, help="The configuration file.")
@click.option("--state-dir", type=_PATH, help="The state directory.")
@click.option(
    "--host", callback=_checked_host, help="The address to listen on; overrides the file."
)
@click.option("--port", type=click.IntRange(0, 65535), help="The port; overrides the file.")
@click.option("--demo", is_flag=True, help="Serve a simulated model, without a configuration.")
def serve(
    config: Path | None, state_dir: Path | None, host: str | None, port: int | None, demo: bool
) -> None:
    """Serve requests until SIGTERM or Ctrl-C; then running replies can finish."""
    if demo and config:
        raise click.UsageError("--demo has no configuration: use either --demo or --config.")
    _open_standard_files()
    options = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    with log_to_stderr() as process_log:
        try:
            inherited = inherited_sockets()
            has_address = bool(options) or not inherited
            if demo:
                _run(_demo(state_dir or _DEMO_STATE_DIR, options, inherited, has_address))
            else:
                source = _config_source(find_config(config), state_dir, options)
                with report_config_errors():
                    loaded = source.read()
                process_log.configure(loaded)
                _run(_serve(loaded, source, process_log, inherited, has_address))
        except (StateLocked, RowsLost) as error:
            _exit(str(error), 1, process_log)
        except ServerUnavailable as error:
            _exit(str(error), EX_UNAVAILABLE, process_log)
        except (StoreError, AdminSocketError) as error:
            _exit(str(error), 1 if demo else EX_CONFIG, process_log)  # a demo has no configuration
        except BindError as error:
            _exit(f"{error}; choose another port with --port", 1, process_log)
        except (ActivationError, OSError) as error:
            _exit(str(error), 1, process_log)


def _open_standard_files() -> None:
    """Opens the null device for standard files that were closed at the start (`2>&-`): else the
    next file that is opened, of the event loop or the database, would get their number, and text
    meant for them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, this one
            os.set_inheritable(opened, True)


def _run(main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it exists: measured 20 to 30 % more requests per second."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def _config_source(
    file: Path | None, state_dir: Path | None, options: Mapping[str, object]
) -> ConfigSource:
    """The options take precedence each time that the file is loaded."""

    def load(content: bytes | None = None) -> Config:
        loaded = load_config(file, state_dir=state_dir, content=content)
        return _override_server(loaded, options)

    return ConfigSource(file, load, check=load)


async def _serve(
    config: Config,
    source: ConfigSource,
    process_log: ProcessLog,
    inherited: Sequence[socket.socket],
    has_address: bool,
) -> None:
    for warning in config.warnings:
        log.warning(warning)
    if inherited:
        ending = "" if has_address else ": server.host and server.port do not apply"
        log.info("systemd has passed the socket%s", ending)
    async with run_daemon(config, source, process_log, inherited, has_address) as daemon:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, daemon.reload)
        stop = _handle_signals(daemon)
        async with systemd_notifications(daemon):
            _freeze_objects()
            public = config.server.public_url
            log.info("console on %s/console", public or daemon.address)
            log.info("serving on %s%s", daemon.address, f", for clients {public}" if public else "")
            await stop.wait()


async def _demo(
    state_dir: Path,
    options: Mapping[str, object],
    inherited: Sequence[socket.socket],
    has_address: bool,
) -> None:
    _clear_state_dir(state_dir)
    async with _simulator() as port:
        config = _override_server(demo_config(port, state_dir), {"drain_timeout": 2.0, **options})
        async with (
            run_daemon(config, None, None, inherited, has_address) as daemon,
            systemd_notifications(daemon),
        ):
            stop = _handle_signals(daemon)
            _, key = await daemon.operations.create_key("demo", "default")
            password = token_urlsafe(12)
            await daemon.console.access.admins.set_password(password)
            click.echo(
                _DEMO_HELP.format(
                    address=daemon.address,
                    key=key,
                    password=password,
                    state_dir=state_dir,
                    executable=_executable(),
                ),
                nl=False,
            )
            await stop.wait()


@asynccontextmanager
async def _simulator() -> AsyncIterator[int]:
    """The loopback port of a simulated model."""
    from gateway.simulator import build_simulator

    async with AsyncExitStack() as stack:
        runner = web.AppRunner(build_simulator(), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]


_GC_THRESHOLD: Final = 10_000
"""New objects between two garbage collections. Requests create no reference cycles, and Python's
default of 700 is reached every few requests."""


def _freeze_objects() -> None:
    """Excludes the existing objects (code, configuration, database) from garbage collection, which
    would take 60 ms each time and delay every stream."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)


def _handle_signals(daemon: Daemon) -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one aborts running requests."""
    stop = asyncio.Event()

    def handle() -> None:
        if stop.is_set():
            daemon.abort()
        else:
            log.info("stopping: running replies can finish")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)
    return stop


def _override_server(config: Config, options: Mapping[str, object]) -> Config:
    return config.model_copy(update={"server": config.server.model_copy(update=options)})


def _clear_state_dir(state_dir: Path) -> None:
    """Empties the state directory of an earlier demo, under its lock. Raises StoreError for a
    directory that no demo created, AdminSocketError for one that cannot have a socket."""
    socket_path(state_dir)
    marker = state_dir / _DEMO_MARKER
    with lock_state_dir(state_dir):
        existing = {path for path in state_dir.iterdir() if path.name != LOCK_NAME}
        if existing and not marker.is_file():  # `var` has a folder of that name
            raise StoreError(
                f"{state_dir} was not created by a demo, which would empty it: choose a new or an "
                "empty directory"
            )
        marker.touch()
        for path in existing - {marker}:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _exit(message: str, code: int, process_log: ProcessLog) -> NoReturn:
    """The message is the last line of standard error."""
    if process_log.is_json:
        log.critical("%s", message)
    else:
        process_log.write(f"gateway: {message}")
    sys.exit(code)
