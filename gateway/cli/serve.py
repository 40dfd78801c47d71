"""What `gateway serve --demo` tells a newcomer: ready commands, addresses, the key and the
console's password.

`gateway serve`: runs the daemon until SIGTERM or SIGINT; at SIGHUP it reads its file again.

It must not know what serving means.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import Final, NoReturn

import click
from aiohttp import web

from gateway.admin.reload import ConfigSource
from gateway.admin.socket import AdminSocketError, socket_path
from gateway.cli.output import EX_CONFIG, report_config_errors
from gateway.config import Config, demo_config, find_config, load_config
from gateway.daemon import Daemon, run_daemon, systemd_notifications
from gateway.server.listener import BindError
from gateway.store.errors import StateLocked, StoreError
from gateway.store.lock import DEMO_NAME, LOCK_NAME, lock_state_dir

_CALLS: Final = (
    (
        "chat-completions",
        "/v1/chat/completions",
        ("-H 'authorization: Bearer {key}'",),
        '{{"model": "beta-5.4", "stream": true, '
        '"messages": [{{"role": "user", "content": "Hello!"}}]}}',
    ),
    (
        "messages",
        "/v1/messages",
        ("-H 'x-api-key: {key}'", "-H 'vendor-version: 2023-06-01'"),
        '{{"model": "alpha-sonnet-4-6", "max_tokens": 200, "stream": true, '
        '"messages": [{{"role": "user", "content": "Hello!"}}]}}',
    ),
    (
        "responses",
        "/v1/responses",
        ("-H 'authorization: Bearer {key}'",),
        '{{"model": "beta-5.4", "stream": true, "input": "Hello!"}}',
    ),
)


def print_demo_help(address: str, key: str, password: str, state_dir: Path) -> None:
    """Prints three commands that work as they stand, and what to configure clients with."""
    click.echo(f"A gateway with a simulated model is serving on {address}\n")
    for name, path, headers, body in _CALLS:
        lines = [f"curl -N {address}{path}", "-H 'content-type: application/json'", *headers]
        command = " \\\n  ".join([*lines, f"-d '{body}'"]).format(key=key)
        click.echo(f"# {name}\n{command}\n")
    click.echo(f"base address for chat and responses clients: {address}/v1")
    click.echo(f"base address for messages clients:           {address}")
    click.echo(f"key: {key}\n")
    click.echo(f"console: {address}/console  password, for this run: {password}\n")
    click.echo(f"Every request is on record: {_command()} logs list --state-dir {state_dir}")
    click.echo("Ctrl-C stops it.")


def _command() -> str:
    """How this gateway is called from here, for a shell that may not have it on its path."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "gateway" else "python -m gateway"


DEMO_STATE: Final = Path("var", DEMO_NAME)

_DEMO_MARK: Final = "demo"
"""A file in a state directory that a demo made: whatever else is there, a demo may empty it."""

log = logging.getLogger(__name__)


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="The configuration file.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="Where the ledger lives.")
@click.option("--host", help="The address to listen on, instead of the file's.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port, instead of the file's.")
@click.option("--demo", is_flag=True, help="Serve a simulator; no configuration is needed.")
def serve(
    config: Path | None, state_dir: Path | None, host: str | None, port: int | None, demo: bool
) -> None:
    """Serve requests until SIGTERM or Ctrl-C; running replies may end first."""
    if demo and config:
        raise click.UsageError("--demo needs no configuration: name one or the other.")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asked = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    try:
        if demo:
            _run(_demo(state_dir or DEMO_STATE, asked))
        else:
            source = _config_source(find_config(config), state_dir, asked)
            with report_config_errors():
                found = source.read()
            _run(_serve(found, source))
    except StateLocked as error:
        _exit(str(error), 1)
    except (StoreError, AdminSocketError) as error:
        _exit(str(error), 1 if demo else EX_CONFIG)  # a demo has no configuration to be wrong
    except BindError as error:
        _exit(f"{error}; another port: --port", 1)
    except OSError as error:
        _exit(str(error), 1)


def _run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it exists: measured 20 to 30 % more requests per second."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def _config_source(
    file: Path | None, state_dir: Path | None, asked: Mapping[str, object]
) -> ConfigSource:
    """Whenever the file is read, what the command line says goes before it."""
    return ConfigSource(
        file, lambda: _override_server(load_config(file, state_dir=state_dir), asked)
    )


async def _serve(config: Config, source: ConfigSource) -> None:
    for warning in config.warnings:
        log.warning(warning)
    async with run_daemon(config, source) as daemon:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, daemon.reload)
        async with systemd_notifications(daemon):
            _freeze_objects()
            public = config.server.public_url
            log.info("serving on %s%s", daemon.address, f", for clients {public}" if public else "")
            await _wait_for_signal(daemon)


async def _demo(state_dir: Path, asked: Mapping[str, object]) -> None:
    _clear_state_dir(state_dir)
    async with _simulator() as port:
        config = _override_server(demo_config(port, state_dir), {"drain_timeout": 2.0, **asked})
        async with run_daemon(config) as daemon, systemd_notifications(daemon):
            _, key = await daemon.operations.create_key("demo", "default")
            password = token_urlsafe(12)
            await daemon.console.sessions.set_password(password)
            print_demo_help(daemon.address, key, password, state_dir)
            await _wait_for_signal(daemon)


@asynccontextmanager
async def _simulator() -> AsyncIterator[int]:
    """A simulated model on a loopback port of its own, reached over real HTTP."""
    from gateway.simulator import build_simulator

    async with AsyncExitStack() as stack:
        runner = web.AppRunner(build_simulator(), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]


_GC_THRESHOLD: Final = 10_000
"""New objects after which the collector looks for garbage. A request leaves none that only it
could find, but with Python's own threshold of 700 it runs every few requests."""


def _freeze_objects() -> None:
    """What exists now exists until the end: code, configuration, database. The collector need not
    walk over it: that takes 60 ms each time, and holds every stream up meanwhile."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)


async def _wait_for_signal(daemon: Daemon) -> None:
    """Waits for the first stop signal; a second one ends what still runs at once."""
    stop = asyncio.Event()

    def told() -> None:
        if stop.is_set():
            daemon.abort()
        else:
            log.info("stopping: running replies may end first")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    await stop.wait()


def _override_server(config: Config, asked: Mapping[str, object]) -> Config:
    return config.model_copy(update={"server": config.server.model_copy(update=asked)})


def _clear_state_dir(state_dir: Path) -> None:
    """A demo starts fresh; holding the lock, so that it never empties one that runs. Raises
    StoreError where there is something that no demo made, AdminSocketError where none can run."""
    socket_path(state_dir)
    mark = state_dir / _DEMO_MARK
    with lock_state_dir(state_dir):
        found = {path for path in state_dir.iterdir() if path.name != LOCK_NAME}
        if found and not mark.is_file():  # the usual state directory has a folder of that name
            raise StoreError(
                f"{state_dir} was not made by a demo, which would empty it: name a new or an "
                "empty directory"
            )
        mark.touch()
        for path in found - {mark}:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _exit(message: str, code: int) -> NoReturn:
    click.echo(f"gateway: {message}", err=True)
    sys.exit(code)
