"""`gateway serve` as a process: start, failed starts, notifications to systemd, stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.store.migrations import MIGRATIONS, migrate
from gateway.store.sqlite.database import SqliteDatabase
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.resilience.chaos.process import (
    GATEWAY,
    START_TIMEOUT,
    GatewayProcess,
    create_key,
    is_intact,
    write_config,
)
from tests.support.paths import ROOT
from tests.support.timing import SLACK

RefusedStart = Callable[..., tuple[int, str]]

SOON = SLACK
"""Seconds that an idle gateway may take to end on a busy machine."""


def status(url: str, key: str = "") -> int:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        with refusal:
            return refusal.code


@contextmanager
def serving(folder: Path, *arguments: str | Path, **environment: str) -> Iterator[GatewayProcess]:
    """A gateway without channels that serves, in `folder`."""
    folder.mkdir(exist_ok=True)
    config = write_config(folder)
    with GatewayProcess(folder, "--config", config, *arguments, **environment) as gateway:
        gateway.address()
        yield gateway


@pytest.mark.processes
def test_all_errors_of_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text("server: {port: none, hosst: x}\nchannels: 7\n")
    with GatewayProcess(tmp_path, "--config", file) as gateway:
        assert gateway.wait() == 78
    assert gateway.stderr.splitlines() == [
        f"{file}:1: server.port: must be a whole number",
        f"{file}:1: server.hosst: unknown key; did you mean host?",
        f"{file}:2: channels: must be a list",
    ]
    assert not (tmp_path / "var").exists()


def test_a_missing_configuration(tmp_path: Path, refused_start: RefusedStart) -> None:
    code, text = refused_start("--config", tmp_path / "none.yaml")
    assert code == 78
    assert "none.yaml: cannot be read: No such file or directory" in text


@pytest.mark.processes
def test_a_state_directory_in_use(tmp_path: Path, refused_start: RefusedStart) -> None:
    state = tmp_path / "first" / "state"
    second = tmp_path / "second"
    second.mkdir()
    with serving(tmp_path / "first") as first:
        for given in (("--config", write_config(second)), ("--demo",)):
            code, text = refused_start("--state-dir", state, *given)
            assert code == 1
            assert text.splitlines()[-1] == f"gateway: {state} is in use by process {first.pid}"
            assert status(f"{first.address()}/healthz") == 200


def test_a_port_in_use(tmp_path: Path, refused_start: RefusedStart) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = refused_start("--config", write_config(tmp_path), "--port", str(port))
    assert code == 1
    *_, message = text.splitlines()
    assert message.startswith("gateway: cannot listen")
    assert str(port) in message
    assert "address already in use" in message
    assert "Traceback" not in text


def test_an_invalid_database(tmp_path: Path, refused_start: RefusedStart) -> None:
    config = write_config(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "gateway.db").write_bytes(b"no database, whatever it is called" * 100)
    code, text = refused_start("--config", config)
    assert code == 78
    assert text.splitlines()[-1].startswith("gateway: ")
    assert "gateway.db" in text
    assert "Traceback" not in text


@pytest.mark.processes
def test_without_channels_it_serves_but_is_not_ready(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway:
        assert "WARNING" in gateway.stderr
        assert "No channels" in gateway.stderr
        assert status(f"{gateway.address()}/healthz") == 200
        assert status(f"{gateway.address()}/readyz") == 503


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_stops_immediately(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as gateway:
        place = urlsplit(gateway.address())
        idle = socket.create_connection((place.hostname, place.port))
        began = time.monotonic()
        gateway.signal(number)
        assert gateway.wait() == 0
        idle.close()
    assert time.monotonic() - began < SOON
    assert "Traceback" not in gateway.stderr
    assert not list((tmp_path / "state").glob("*-wal"))


@pytest.mark.slow("starts the daemon for each case")
@pytest.mark.processes
@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_files(tmp_path: Path, closed: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [*GATEWAY, "serve", "--config", str(write_config(tmp_path)), "--port", port]
    gateway = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and gateway.poll() is None:
            with suppress(URLError):
                assert status(f"http://127.0.0.1:{port}/healthz") == 200
                break
            time.sleep(0.05)
        assert Path(f"/proc/{gateway.pid}/fd/2").readlink() == Path(os.devnull)
        gateway.terminate()
        assert gateway.wait(START_TIMEOUT) == 0
    finally:
        gateway.kill()
        gateway.wait()


@pytest.mark.processes
async def test_keys_survive(tmp_path: Path) -> None:
    write_config(tmp_path)
    key = await create_key(tmp_path)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        with serving(tmp_path) as gateway:
            assert status(f"{gateway.address()}/v1/models", key) == 200
            assert status(f"{gateway.address()}/v1/models", f"{key}x") == 401
            gateway.signal(number)
            assert gateway.wait() == (-9 if number is signal.SIGKILL else 0)


@pytest.mark.processes
def test_host_and_port_of_the_command_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(tmp_path, "--host", "127.0.0.1", "--port", str(port)) as gateway:
        assert gateway.address() == f"http://127.0.0.1:{port}"


@pytest.mark.processes
def test_the_public_address_is_logged(tmp_path: Path) -> None:
    config = write_config(tmp_path, public_url="https://ai.example.org")
    with GatewayProcess(tmp_path, "--config", config) as gateway:
        environment = gateway.wait_for_output(r"serving on (\S+), for clients (\S+)\n")
        assert environment[1].startswith("http://127.0.0.1:")
        assert environment[2] == "https://ai.example.org"
        gateway.wait_for_output(r"console on https://ai\.example\.org/console\n")


@pytest.mark.processes
def test_notifications_to_systemd(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(START_TIMEOUT)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        with serving(tmp_path / "home", **environment) as gateway:
            ready = systemd.recv(1024).decode()
            assert ready == f"READY=1\nSTATUS=serving on {gateway.address()}"
            began = time.monotonic()
            for _ in range(4):
                assert systemd.recv(1024) == b"WATCHDOG=1"
            assert 0.2 < time.monotonic() - began < SLACK
            gateway.signal(signal.SIGTERM)
            while (last := systemd.recv(1024)) == b"WATCHDOG=1":
                pass
            assert last == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=50000000"
            assert gateway.wait() == 0
            systemd.setblocking(False)
            with pytest.raises(BlockingIOError):
                systemd.recv(1024)


@contextmanager
def systemd(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(folder / "notify"))
        receiver.settimeout(START_TIMEOUT)
        yield receiver


@pytest.mark.processes
def test_a_gateway_is_ready_when_all_of_it_is(tmp_path: Path) -> None:
    """After the migration, and when it listens."""
    path = tmp_path / "home" / "state" / DATABASE_NAME
    asyncio.run(migrate_to(path, 5))
    with systemd(tmp_path) as received, socket.create_server(("127.0.0.1", 0)) as held:
        config = write_config(tmp_path / "home")
        with GatewayProcess(
            tmp_path / "home",
            *("--config", config),
            inherited=[held],
            NOTIFY_SOCKET=str(tmp_path / "notify"),
        ) as gateway:
            assert received.recv(1024).startswith(b"READY=1\n")
            with closing(sqlite3.connect(path)) as database:
                query = "SELECT value FROM settings WHERE name = 'schema_version'"
                assert database.execute(query).fetchone() == (str(len(MIGRATIONS)),)
            assert status(f"http://127.0.0.1:{held.getsockname()[1]}/healthz") == 200
            assert "the database was copied to" in gateway.stderr
            assert f"schema changes from 5 to {len(MIGRATIONS)}" in gateway.stderr


async def migrate_to(path: Path, version: int) -> None:
    database = SqliteDatabase(path)
    await migrate(database, 0, MIGRATIONS[:version])
    await database.close()


def test_a_failed_start_is_never_ready(
    tmp_path: Path, refused_start: RefusedStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with systemd(tmp_path) as received, socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "home").mkdir()
        config = write_config(tmp_path / "home", port=taken.getsockname()[1])
        assert refused_start("--config", config)[0] == 1
        received.setblocking(False)
        with pytest.raises(BlockingIOError):
            received.recv(1024)


@pytest.mark.processes
def test_systemd_sees_a_reload_begin_and_end(tmp_path: Path) -> None:
    with systemd(tmp_path) as received:
        notify = str(tmp_path / "notify")
        with serving(tmp_path / "home", NOTIFY_SOCKET=notify) as gateway:
            assert received.recv(1024).startswith(b"READY=1")
            for content in (None, "channels: 7"):  # an invalid file ends it too
                if content is not None:
                    (tmp_path / "home" / "channels.yaml").write_text(content)
                before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
                gateway.signal(signal.SIGHUP)
                reloading, _, since = received.recv(1024).partition(b"\nMONOTONIC_USEC=")
                assert reloading == b"RELOADING=1"
                assert before <= int(since) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
                assert received.recv(1024) == b"READY=1"


@pytest.mark.one_in(5)
@pytest.mark.processes
@pytest.mark.parametrize("delay", [0.3, 0.6, 0.8, 1.0, 1.2])
def test_sigterm_during_the_start_breaks_nothing(tmp_path: Path, delay: float) -> None:
    """Also during the copy before a migration, and during the migration itself."""
    path = tmp_path / "state" / DATABASE_NAME
    asyncio.run(migrate_to(path, 3))
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE ballast (content BLOB)")
        database.executemany("INSERT INTO ballast VALUES (?)", ((bytes(2**20),) for _ in range(60)))
        database.commit()
    config = write_config(tmp_path)
    with GatewayProcess(tmp_path, "--config", config, python=sys.executable) as gateway:
        time.sleep(delay)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() in (0, -signal.SIGTERM)
    with GatewayProcess(tmp_path, "--config", config) as gateway:
        assert status(f"{gateway.address()}/healthz") == 200
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    assert is_intact(tmp_path)


def test_a_demo_has_no_configuration(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["serve", "--demo", "--config", str(tmp_path / "c.yaml")])
    assert result.exit_code == 2
    assert "--demo" in result.stderr


@pytest.mark.parametrize("host", ["999.1.1.1", "1.2.3", "", "a b"])
def test_no_address_of_a_host(host: str) -> None:
    """The file was checked, the option was not."""
    result = CliRunner().invoke(main, ["serve", "--demo", "--host", host])
    assert result.exit_code == 2
    assert "--host" in result.stderr
    assert "neither an IP address nor the name of a host" in result.stderr


@pytest.mark.processes
def test_rarely_used_modules_are_not_imported(tmp_path: Path) -> None:
    """Each of them delays the start and takes memory until the end. Where there is no database yet,
    the start may need more."""
    asyncio.run(create_key(tmp_path))
    config = write_config(tmp_path)
    with GatewayProcess(
        tmp_path, "--config", config, python=sys.executable, PYTHONPROFILEIMPORTTIME="1"
    ) as gateway:
        gateway.address()
        lines = gateway.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")}
    assert "gateway.console.app" in imported
    rare = {"gateway.simulator", "jinja2", "rich", "sqlalchemy.dialects.postgresql"}
    rare |= {"opentelemetry", "gateway.telemetry.spans"}
    assert imported.isdisjoint(rare), imported & rare
