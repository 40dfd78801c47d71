"""Sockets from systemd: what is taken, and what is refused with a reason."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.server.http.systemd import inherited_sockets
from tests.resilience.chaos.process import GatewayProcess, process_environment, write_config
from tests.support.forked_process import run_forked

pytestmark = pytest.mark.processes


@pytest.fixture
def held() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as parent:
        yield parent


def url(held: socket.socket) -> str:
    return "http://{}:{}".format(*held.getsockname()[:2])


def is_alive(address: str) -> bool:
    with urllib.request.urlopen(f"{address}/healthz", timeout=5) as answer:
        return bool(answer.status == 200)


def taken(inherited: socket.socket, **environment: str) -> str:
    """What a process that gets the socket says: the ports it takes, or why it takes none."""
    done = run_forked(
        "tests.server.http.inherited_ports",
        inherited=[inherited.fileno()],
        env=process_environment() | environment,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_address_of_the_socket_replaces_that_of_the_file(
    tmp_path: Path, held: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = write_config(tmp_path, port=taken.getsockname()[1])
        with GatewayProcess(tmp_path, "--config", config, inherited=[held]) as gateway:
            assert gateway.address() == url(held)
            assert is_alive(url(held))
            assert "server.host and server.port do not apply" in gateway.stderr


def test_several_sockets(tmp_path: Path) -> None:
    with ExitStack() as stack:
        both = [
            stack.enter_context(socket.create_server((host, 0), family=family))
            for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))
        ]
        config = write_config(tmp_path)
        with GatewayProcess(tmp_path, "--config", config, inherited=both) as gateway:
            gateway.address()
            assert is_alive(url(both[0]))
            assert is_alive(f"http://[::1]:{both[1].getsockname()[1]}")
            gateway.signal(signal.SIGTERM)
            assert gateway.wait() == 0
        for each in both:  # they still listen
            with socket.create_connection(each.getsockname()[:2], timeout=5):
                pass


@pytest.mark.parametrize("pid", ["1", "", "abc"])
def test_sockets_of_another_process_are_not_taken(held: socket.socket, pid: str) -> None:
    assert taken(held) == str(held.getsockname()[1])
    assert taken(held, LISTEN_PID=pid) == ""


def test_the_variables_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FDS", "1"), ("PID", "1"), ("FDNAMES", "x")):
        monkeypatch.setenv(f"LISTEN_{name}", value)
    assert inherited_sockets() == []
    assert not {name for name in os.environ if name.startswith("LISTEN_")}


def test_a_unix_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        config = write_config(tmp_path)
        with GatewayProcess(tmp_path, "--config", config, inherited=[unix]) as gateway:
            assert gateway.wait() == 1
    text = "file descriptor 3 of systemd is no TCP socket (AF_UNIX, SOCK_STREAM)"
    assert text in gateway.stderr
    assert "Traceback" not in gateway.stderr


def test_a_socket_that_does_not_listen_is_refused(held: socket.socket) -> None:
    with socket.create_connection(held.getsockname()) as connected:
        assert "file descriptor 3 of systemd does not listen" in taken(connected)


def test_a_missing_file_descriptor_is_refused(held: socket.socket) -> None:
    assert "LISTEN_FDS=2, but file descriptor 4" in taken(held, LISTEN_FDS="2")


def test_a_port_of_the_command_line_is_one_more_address(
    tmp_path: Path, held: socket.socket
) -> None:
    """It was refused, so that replicas behind one socket had no address of their own."""
    config = write_config(tmp_path)
    with GatewayProcess(tmp_path, "--config", config, "--port", "0", inherited=[held]) as gateway:
        own = gateway.address()
        assert own != url(held)
        assert is_alive(own)
        assert is_alive(url(held))
        assert "do not apply" not in gateway.stderr
