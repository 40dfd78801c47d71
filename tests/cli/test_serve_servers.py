"""`gateway serve` where PostgreSQL or Valkey cannot be used at the start: 69 for what ends by
itself, so that systemd starts it again; 78 for what an operator has to change."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answering_server import answering_each
from tests.resilience.chaos.process import GatewayProcess, write_config
from tests.support.databases import run_apart
from tests.support.postgres import (
    drop_database,
    new_database_url,
    own_postgres_server,
    postgres_server,
)
from tests.support.valkey import ValkeyServer

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

Refusal = Callable[..., tuple[int, str]]

UNAVAILABLE, CONFIG = 69, 78
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def url() -> Iterator[str]:
    url = run_apart(new_database_url())
    yield url
    run_apart(drop_database(postgres_server(), url.rpartition("/")[2]))


@pytest.fixture
def refusal(tmp_path: Path, refused_start: Refusal) -> Refusal:
    """The exit code and the last line of a start with these sections."""

    def start(**sections: Any) -> tuple[int, str]:
        code, text = refused_start("--config", write_config(tmp_path, sections=sections))
        assert "Traceback" not in text
        return code, text.splitlines()[-1]

    return start


@contextmanager
def answering(answers: list[tuple[bytes, bytes]], rest: bytes) -> Iterator[str]:
    """The address of a server that says what is given for commands with these words."""

    def answer(connection: socket.socket) -> None:
        while received := connection.recv(65536):
            found = [text for word, text in answers if word in received]
            connection.sendall(found[0] if found else rest)

    with socket.create_server(("127.0.0.1", 0)) as listener, answering_each(listener, answer):
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_database_server_that_refuses_connections_or_says_nothing(
    tmp_path: Path, refusal: Refusal
) -> None:
    config = write_config(tmp_path, sections={"database": f"postgresql://gw@{NOWHERE}/gateway"})
    with GatewayProcess(tmp_path, "--config", config) as gateway:
        assert gateway.wait() == UNAVAILABLE
    assert "the connection was refused" in gateway.stderr.splitlines()[-1]
    assert "Traceback" not in gateway.stderr
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        url = f"postgresql://gw@{address}/gateway"
        code, line = refusal(database={"url": url, "timeout": 1})
        assert (code, "it does not answer in time" in line) == (UNAVAILABLE, True)


def test_a_database_that_does_not_exist(refusal: Refusal) -> None:
    code, line = refusal(database=postgres_server().url("nowhere"))
    assert (code, "there is no database" in line) == (CONFIG, True)


def test_a_database_server_that_has_just_started_or_is_a_standby(refusal: Refusal) -> None:
    with own_postgres_server() as server:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        code, line = refusal(database=server.url("postgres"))
        assert (code, "it is a standby" in line) == (UNAVAILABLE, True)


def test_a_shared_server_that_refuses_connections(refusal: Refusal, url: str) -> None:
    code, line = refusal(database=url, shared=f"valkey://{NOWHERE}/0")
    assert (code, "cannot be reached" in line) == (UNAVAILABLE, True)


@pytest.mark.parametrize("word", ["LOADING", "OOM", "MISCONF", "READONLY"])
def test_a_shared_server_that_is_up_but_of_no_use_yet(
    refusal: Refusal, url: str, word: str
) -> None:
    text = "valkey_version:9.1.0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n"
    info = f"${len(text)}\r\n{text}\r\n".encode()
    answers = [(b"INFO", info), (b"probe", f"-{word} not now\r\n".encode())]
    with answering(answers, b"+OK\r\n") as address:
        code, line = refusal(database=url, shared=f"valkey://{address}/0")
    assert (code, f"cannot be written to: {word} not now" in line) == (UNAVAILABLE, True)


def test_a_shared_server_that_evicts_or_wants_a_password(
    tmp_path: Path, refusal: Refusal, url: str
) -> None:
    server = ValkeyServer(tmp_path, "--maxmemory-policy", "allkeys-lru")
    try:
        code, line = refusal(database=url, shared=server.url)
        assert (code, "maxmemory-policy allkeys-lru" in line) == (CONFIG, True)
        server.command("CONFIG", "SET", "requirepass", "secret")
        code, line = refusal(database=url, shared=server.url)
        assert (code, "requires a password" in line) == (CONFIG, True)
    finally:
        server.stop(signal.SIGKILL)
