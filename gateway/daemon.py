"""Puts one gateway together and takes it apart again: state, ledger, line, doors.

It must not know commands or terminals; tests run the same thing in their own loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from gateway.admin.accounts import Accounts
from gateway.admin.api import build_admin
from gateway.admin.desk import Desk
from gateway.admin.events import add_feed
from gateway.admin.feed import Feed
from gateway.admin.keeping import keeping
from gateway.admin.live import add_live
from gateway.admin.reload import Reloader, Source
from gateway.admin.socket import serve_admin
from gateway.admission.acquaintances import Acquaintances
from gateway.admission.purses import load_purses
from gateway.app import build_app
from gateway.config import Config
from gateway.console.entrance import add_entrance
from gateway.console.office import Office
from gateway.console.sessions import Sessions
from gateway.routing.affinity import Affinities
from gateway.runtime import Runtime, Snapshot, unix_microseconds
from gateway.server.deadlines import abort_all
from gateway.server.listen import Door, listening
from gateway.server.notify import keep_watchdog_fed, notify
from gateway.server.tryout import try_account
from gateway.store.database import Database
from gateway.store.errors import StateLocked
from gateway.store.lock import DATABASE_NAME, hold
from gateway.store.recorder import Recorder
from gateway.store.registry import Registry
from gateway.store.tokens import note_use

LOCK_PATIENCE: Final = 1.5


@dataclass(frozen=True, slots=True)
class Daemon:
    """A gateway that serves. `address` is host and port, port 0 resolved; without a `reloader` the
    configuration stays what it is."""

    runtime: Runtime
    desk: Desk
    office: Office
    door: Door
    reloader: Reloader | None = None

    def abort(self) -> None:
        """Ends what still runs, in-band and now, instead of after the drain time."""
        abort_all(self.runtime)

    def reload(self) -> None:
        """Has the configuration's file read again, soon; what comes of it is in the log."""
        if self.reloader is not None:
            self.reloader.ask()

    @property
    def address(self) -> str:
        host, port = self.door.addresses[0]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def running(config: Config, source: Source | None = None) -> AsyncIterator[Daemon]:
    """A gateway that serves until the block is left; then it drains and flushes the ledger.

    The configuration was read from `source`, which is followed from then on. Raises `StoreError`
    (locked, damaged or newer state), `AdminSocketError`, or `CannotListen` where the port is taken.
    """
    async with AsyncExitStack() as house:
        await _hold(house, config.state_dir)
        database = await Database.open(config.state_dir / DATABASE_NAME)
        house.push_async_callback(database.close)
        registry = await Registry.load(database)
        recorder = Recorder(database)
        await recorder.start()
        house.push_async_callback(recorder.close)
        known = Affinities(config.affinity.headers)
        acquaintances = Acquaintances(registry, partial(note_use, database), unix_microseconds)
        house.push_async_callback(acquaintances.close)
        runtime = Runtime(Snapshot.of(config), registry, recorder, acquaintances, affinities=known)
        await load_purses(runtime.quota, database, unix_microseconds())
        house.push_async_callback(runtime.hang_up)
        desk = Desk(database, registry, unix_microseconds, boot_id=recorder.boot_id)
        feed = Feed(desk)
        recorder.on_commit = feed.note
        reloader = None
        if source is not None:
            reloader = Reloader(runtime, source)
            await house.enter_async_context(reloader.following())
        admin = build_admin(desk, reloader)
        accounts = Accounts(runtime, partial(try_account, runtime))
        add_live(admin, runtime, accounts)
        add_feed(admin, feed)
        sessions = await Sessions.load(database, unix_microseconds)
        house.push_async_callback(sessions.close)
        add_entrance(admin, sessions)
        await house.enter_async_context(keeping(runtime, database))
        await house.enter_async_context(serve_admin(admin, config.state_dir))
        office = Office(desk, runtime, accounts, reloader, sessions, feed, unix_microseconds)
        server = config.server
        door = await house.enter_async_context(
            listening(build_app(runtime, office), server.host, server.port)
        )
        house.callback(feed.close)  # after the drain: its last requests are events too
        house.push_async_callback(_drain, door, runtime)
        yield Daemon(runtime, desk, office, door, reloader)


async def _drain(door: Door, runtime: Runtime) -> None:
    await door.drain(runtime, runtime.config.server.drain_timeout)


async def _hold(house: AsyncExitStack, state_dir: Path) -> None:
    """A command that stands in for the daemon holds the lock for a moment: that is waited for."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOCK_PATIENCE
    while True:
        try:
            house.enter_context(hold(state_dir))
            return
        except StateLocked:
            if loop.time() > deadline:
                raise
        await asyncio.sleep(0.05)


@asynccontextmanager
async def supervised(daemon: Daemon) -> AsyncIterator[None]:
    """Keeps systemd informed for as long as the block lasts."""
    watchdog = asyncio.ensure_future(keep_watchdog_fed(lambda: daemon.runtime.recorder.alive))
    notify("READY=1", f"STATUS=serving on {daemon.address}")
    try:
        yield
    finally:
        watchdog.cancel()
        drain = daemon.runtime.config.server.drain_timeout
        notify("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((drain + 20) * 1e6)}")
