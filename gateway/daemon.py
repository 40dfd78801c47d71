"""Starts and stops one gateway: database, runtime, admin socket, listener."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.admin.access.access import Access
from gateway.admin.accounts import Accounts
from gateway.admin.api.access import add_access_routes
from gateway.admin.api.alerts import add_alert_routes
from gateway.admin.api.console import add_session_routes
from gateway.admin.api.feed import add_feed_routes
from gateway.admin.api.live import add_live_routes
from gateway.admin.api.replicas import add_replica_routes
from gateway.admin.api.routes import build_admin_app
from gateway.admin.api.socket import serve_admin
from gateway.admin.config_history import ConfigHistory
from gateway.admin.discovery import run_discovery
from gateway.admin.feed import Feed
from gateway.admin.operations import AdminOperations
from gateway.admin.reload import ConfigSource, Reloader
from gateway.admin.retention import run_retention
from gateway.admission.budgets import budget_holders, load_budgets, load_dimension_budgets
from gateway.admission.key_origins import KeyOriginMonitor
from gateway.admission.local import Admission
from gateway.alerts.monitor import run_alerts
from gateway.app import build_app
from gateway.config.schema import Config
from gateway.console.context import ConsoleContext
from gateway.credentials.accounts import run_credentials
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import Quota
from gateway.replicas import Fleet
from gateway.routing.affinity import AffinityIndex
from gateway.routing.health import Health
from gateway.routing.refusals import Refusals
from gateway.runtime import Runtime, Snapshot, unix_microseconds
from gateway.server.http.listener import Listener, serve
from gateway.server.http.systemd import announced_reload, notify, run_watchdog
from gateway.server.proxy.account_probe import probe_account
from gateway.server.proxy.model_entries import rendered_catalog
from gateway.server.record.deadlines import abort_all
from gateway.server.stored.background import end_interrupted
from gateway.store.database import Database
from gateway.store.errors import StateLocked
from gateway.store.log.recorder import Recorder
from gateway.store.open import open_database
from gateway.store.registry import Registry
from gateway.store.responses import ResponseStore
from gateway.store.settings import load_disabled
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from gateway.store.tokens import record_origin
from gateway.telemetry.metrics import run_metrics
from gateway.telemetry.process_log import ProcessLog
from gateway.telemetry.tracing import tracing
from gateway.upstream.model_list import fetch_models
from gateway.wire.responses.stored import item_ids

if TYPE_CHECKING:  # only with servers are they imported
    from gateway.fleet.start import Member

LOCK_TIMEOUT: Final = 1.5


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running gateway. Without `reloader` the configuration cannot change."""

    runtime: Runtime
    operations: AdminOperations
    console: ConsoleContext
    listener: Listener
    reloader: Reloader | None = None

    def abort(self) -> None:
        """Ends running requests now, with an error in the stream."""
        abort_all(self.runtime)

    def reload(self) -> None:
        """Starts a reload of the configuration; its result is logged."""
        if self.reloader is not None:
            self.reloader.request_reload()

    @property
    def address(self) -> str:
        """The base URL, with the real port: its own, if it has any beside those of systemd."""
        host, port = self.listener.addresses[0]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def run_daemon(
    config: Config,
    source: ConfigSource | None = None,
    process_log: ProcessLog | None = None,
    inherited: Sequence[socket.socket] = (),
    has_address: bool = True,
) -> AsyncIterator[Daemon]:
    """Serves for the time of the block, then drains and flushes the request log.

    `source` is the file of the configuration, which is watched; `process_log` is configured by it.
    Listens on the configuration's address, if it `has_address`, and on the `inherited` sockets.
    Raises `StoreError` (locked, damaged or newer state), `AdminSocketError`, or `BindError` if the
    port is in use.
    """
    async with AsyncExitStack() as stack:
        database, recorder, member = await _open_store(stack, config)
        runtime = await _start_runtime(stack, config, database, recorder, member)
        learn = process_log.learn if process_log is not None else None
        await stack.enter_async_context(run_credentials(runtime, learn))
        registry, now, quota = runtime.registry, runtime.now, runtime.quota
        operations = AdminOperations(
            database, registry, now, boot_id=recorder.boot_id, quota=quota, refusal=runtime.refusal
        )
        on_config = None
        if process_log is not None:
            on_config = _log_configuration(runtime, process_log)
            on_config(config)
        reloader = None
        if source is not None:
            history = ConfigHistory(config.state_dir)
            audit = operations.audit
            reloader = Reloader(runtime, source, on_config, audit, history, rendered_catalog)
            await reloader.keep_snapshot("start")
            await stack.enter_async_context(reloader.watch())
            await stack.enter_async_context(
                run_discovery(
                    lambda: runtime.config,
                    config.state_dir,
                    lambda channel: fetch_models(runtime.current.upstream, channel),
                    reloader.request_reload,
                )
            )
        console = await _start_admin(stack, config, runtime, operations, reloader, member)
        tracer = await stack.enter_async_context(tracing(config.traces))
        if tracer is not None:
            runtime.begin_trace = tracer.begin
            runtime.observers = (*runtime.observers, tracer.observe)
        address = (config.server.host, config.server.port) if has_address else None
        listener = await stack.enter_async_context(
            serve(build_app(runtime, console), address, inherited)
        )
        stack.callback(console.feed.close)  # after the drain: the last requests are events too
        stack.push_async_callback(
            lambda: listener.drain(runtime, runtime.config.server.drain_timeout)
        )
        daemon = Daemon(runtime, operations, console, listener, reloader)
        if member is not None:
            await member.membership.attach(runtime, daemon.address)
        yield daemon


async def _open_store(
    stack: AsyncExitStack, config: Config
) -> tuple[Database, Recorder, Member | None]:
    """Opens the database; among several replicas this one is registered in it."""
    await _acquire_lock(stack, config.state_dir)
    database = await open_database(config.database or config.state_dir / DATABASE_NAME)
    stack.push_async_callback(database.close)
    server, spool, member = config.database, None, None
    if server is not None:
        from gateway.store.postgresql.spool import SPOOL_NAME, Spool

        spool = Spool(config.state_dir / SPOOL_NAME, config.replica.spool)
    recorder = Recorder(database, spool=spool)
    stack.push_async_callback(recorder.close)  # where the rest of the start fails
    await recorder.open()
    if server is not None:
        from gateway.fleet.start import joined

        member = await stack.enter_async_context(joined(database, server, config, recorder.boot_id))
        recorder.use_epoch(member.membership.own.epoch)
        member.membership.on_epoch.append(recorder.use_epoch)
    return database, recorder, member


async def _start_runtime(
    stack: AsyncExitStack,
    config: Config,
    database: Database,
    recorder: Recorder,
    member: Member | None,
) -> Runtime:
    """Starts what requests need, from what the database has of earlier processes."""
    now = unix_microseconds if member is None else member.membership.clock.now
    registry = await Registry.load(database)
    await recorder.start()
    stack.push_async_callback(recorder.close)
    origins = KeyOriginMonitor(registry, partial(record_origin, database), now)
    stack.push_async_callback(origins.close)
    stored = ResponseStore(database, lambda: runtime.config.responses, now, item_ids)
    snapshot = Snapshot(config, await asyncio.to_thread(rendered_catalog, config))
    quota, health, affinity = Quota(), Health(), AffinityIndex()
    fleet, admission, cluster, refusals = Fleet(), Admission(quota), None, Refusals()
    if member is not None:
        from gateway.fleet.cluster import Cluster

        quota, holders = Quota(LeasedTracker), partial(budget_holders, registry)
        fleet = cluster = Cluster(
            member,
            config,
            quota,
            holders,
            health,
            affinity,
            refusals,
            lambda: runtime.config,
        )
        admission = cluster.admission
    runtime = Runtime(
        snapshot,
        registry,
        recorder,
        origins,
        stored,
        quota,
        admission,
        fleet,
        now,
        health,
        affinity,
        refusals=refusals,
    )
    await stored.start()
    await end_interrupted(stored)
    stack.push_async_callback(stored.close)
    await load_budgets(runtime.quota, database)
    runtime.dimension_loading = loading = asyncio.ensure_future(_load_dimensions(runtime, database))
    stack.callback(loading.cancel)
    runtime.restore_disabled(await load_disabled(database))
    stack.push_async_callback(runtime.close)
    if cluster is not None:
        await stack.enter_async_context(cluster.run(recorder))
    return runtime


async def _load_dimensions(runtime: Runtime, database: Database) -> None:
    """Loads what end users and sessions have spent today, and counts them among the values of the
    day. It may take seconds, so only requests with their budgets wait for it."""
    now = runtime.now()
    for token_id, stated in await load_dimension_budgets(runtime.quota, database, now):
        runtime.distinct_values.limit(token_id, stated, now)


async def _start_admin(
    stack: AsyncExitStack,
    config: Config,
    runtime: Runtime,
    operations: AdminOperations,
    reloader: Reloader | None,
    member: Member | None,
) -> ConsoleContext:
    """Starts what operators see and change, and the work that needs no requests."""
    database, feed = operations.database, Feed(operations)
    runtime.recorder.on_commit.append(feed.publish)
    admin = build_admin_app(operations, reloader)
    accounts = Accounts(runtime, partial(probe_account, runtime), operations.audit)
    add_live_routes(admin, runtime, accounts)
    add_feed_routes(admin, feed)
    add_replica_routes(admin, runtime, database)
    access = await Access.load(operations.audit, runtime.now, runtime.registry.token)
    stack.push_async_callback(access.close)
    add_access_routes(admin, access)
    add_session_routes(admin, access)
    if member is not None:
        changes = {"admin": access.reload_admins, "admin_token": access.reload_tokens}
        member.follow(runtime, changes | {"session": access.reload_sessions})
    await stack.enter_async_context(run_retention(runtime, database, operations.audit))
    alerts = await stack.enter_async_context(run_alerts(runtime, database))
    add_alert_routes(admin, alerts)
    await stack.enter_async_context(run_metrics(lambda: runtime.metrics))
    await stack.enter_async_context(serve_admin(admin, config.state_dir))
    return ConsoleContext(
        operations, runtime, accounts, reloader, access, feed, alerts, runtime.now
    )


def _log_configuration(runtime: Runtime, process_log: ProcessLog) -> Callable[[Config], None]:
    """Applies a configuration to the process log."""

    def key_of(token_id: str) -> str:
        token = runtime.registry.token(token_id) if token_id else None
        return token.display if token is not None else ""

    observer = process_log.request_observer(key_of)

    def apply(config: Config) -> None:
        process_log.configure(config)
        others = tuple(each for each in runtime.observers if each is not observer)
        runtime.observers = (*others, observer) if config.server.log.requests else others

    return apply


async def _acquire_lock(stack: AsyncExitStack, state_dir: Path) -> None:
    """Waits for commands, which hold the lock for a short time while no gateway runs."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOCK_TIMEOUT
    while True:
        try:
            stack.enter_context(lock_state_dir(state_dir))
            return
        except StateLocked:
            if loop.time() > deadline:
                raise
        await asyncio.sleep(0.05)


@asynccontextmanager
async def systemd_notifications(daemon: Daemon) -> AsyncIterator[None]:
    """Notifies systemd during the block."""
    recorder, reloader = daemon.runtime.recorder, daemon.reloader
    watchdog = asyncio.ensure_future(run_watchdog(lambda: recorder.alive and not recorder.is_stuck))
    notify("READY=1", f"STATUS=serving on {daemon.address}")
    if reloader is not None:  # not earlier: a reload ends with READY=1
        reloader.announce = announced_reload
    try:
        yield
    finally:
        watchdog.cancel()
        if reloader is not None:
            reloader.announce = nullcontext
        drain = daemon.runtime.config.server.drain_timeout
        notify("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((drain + 20) * 1e6)}")
