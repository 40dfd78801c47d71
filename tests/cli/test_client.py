"""The client of commands: with a gateway, standalone, and with other commands."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from gateway.admin.socket_path import socket_path
from gateway.cli import client
from gateway.config.load import parse_config
from gateway.daemon import run_daemon
from gateway.store.keys import digest
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from tests.cli.cli_runner import AdminGateway, CommandRunner, admin_gateway

HELLO = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


@contextmanager
def scripted_server(state_dir: Path, answers: list[bytes]) -> Iterator[threading.Thread]:
    """Holds the lock and gives one of the answers to each connection; with the last it is gone, so
    that nobody connects in vain."""
    listening = threading.Event()

    def run() -> None:
        with lock_state_dir(state_dir), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(socket_path(state_dir)))
            listener.listen()
            listener.settimeout(5)
            listening.set()
            for number, answer in enumerate(answers, 1):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    if number == len(answers):
                        socket_path(state_dir).unlink()
                        listener.close()
                    connection.sendall(answer)

    thread = threading.Thread(target=run)
    thread.start()
    assert listening.wait(5)
    yield thread
    thread.join(10)


@pytest.mark.processes
def test_a_standalone_command_leaves_only_the_database_and_the_lock(shell: CommandRunner) -> None:
    process = shell.process("key", "mint", "--name", "alice")
    key, remarks = process.communicate(timeout=30)
    assert (process.returncode, key[:3]) == (0, b"sk-"), remarks
    assert sorted(path.name for path in shell.state_dir.iterdir()) == [DATABASE_NAME, "lock"]
    assert stat.S_IMODE((shell.state_dir / DATABASE_NAME).stat().st_mode) == 0o600


@pytest.mark.processes
def test_concurrent_commands(shell: CommandRunner) -> None:
    shell.create_key("first")
    processes = [shell.process("key", "mint", "--name", f"key-{n}", "--json") for n in range(4)]
    results = [each.communicate(timeout=50) for each in processes]
    assert [each.returncode for each in processes] == [0] * 4, results
    created = {orjson.loads(output)["id"] for output, _ in results}
    assert len(created) == 4
    assert created < {token["id"] for token in shell.items("key", "list")}


def test_a_command_through_a_running_gateway(shell: CommandRunner, gateway: AdminGateway) -> None:
    assert stat.S_IMODE(socket_path(shell.state_dir).stat().st_mode) == 0o600
    process = shell.process("key", "mint", "--name", "alice")
    assert process.communicate(timeout=30)[0].startswith(b"sk-")
    assert [token["name"] for token in shell.items("key", "list")] == ["alice"]


def test_a_key_from_before_the_first_start_is_accepted(shell: CommandRunner) -> None:
    created = shell.create_key("alice")
    config = parse_config(f"{{state_dir: {shell.state_dir}, server: {{port: 0}}}}")

    async def is_accepted() -> bool:
        async with run_daemon(config) as gateway:
            return gateway.runtime.registry.find(digest(created["key"])) is not None

    assert asyncio.run(is_accepted())


def test_a_stale_socket_is_replaced(shell: CommandRunner) -> None:
    shell.create_key("alice")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(socket_path(shell.state_dir)))
    assert len(shell.items("key", "list")) == 1
    assert not socket_path(shell.state_dir).exists()


def test_a_held_lock_without_a_socket(
    shell: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_CONNECT_TIMEOUT", 0.3)
    with lock_state_dir(shell.state_dir):
        result = shell("key", "list")
    assert result.exit_code == 69
    assert f"is in use by process {os.getpid()}, but its admin socket" in result.stderr


def test_a_socket_without_responses(shell: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CONNECT_TIMEOUT", 0.3)
    with lock_state_dir(shell.state_dir), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path(shell.state_dir)))
        listener.listen()
        result = shell("key", "list")
    assert result.exit_code == 69
    assert "did not answer within 0.3 s." in result.stderr


@pytest.mark.processes
def test_a_gateway_that_starts_while_a_command_waits(shell: CommandRunner) -> None:
    shell.create_key("alice")
    with lock_state_dir(shell.state_dir):
        listing = shell.process("key", "list", "--json")
        with pytest.raises(subprocess.TimeoutExpired):
            listing.wait(1.5)
    with admin_gateway(shell.state_dir):
        output, remarks = listing.communicate(timeout=30)
    assert listing.returncode == 0, remarks
    assert len(orjson.loads(output)["items"]) == 1


@pytest.mark.parametrize("last", [[], [b""]], ids=["before it is asked", "before it answers"])
def test_a_read_is_retried_after_the_gateway_exits(shell: CommandRunner, last: list[bytes]) -> None:
    shell.create_key("alice")
    with scripted_server(shell.state_dir, [HELLO, *last]):
        assert len(shell.items("key", "list")) == 1


def test_a_post_is_retried_if_it_was_not_sent(shell: CommandRunner) -> None:
    with scripted_server(shell.state_dir, [HELLO]):
        shell.create_key("alice")
    assert len(shell.items("key", "list")) == 1


def test_a_post_that_may_have_been_executed_is_not_retried(shell: CommandRunner) -> None:
    with scripted_server(shell.state_dir, [HELLO, b""]):
        result = shell("key", "mint", "--name", "alice")
    assert (result.exit_code, result.stdout) == (69, "")
    assert "check whether it made the change" in result.stderr


def test_an_idempotent_request_is_retried(shell: CommandRunner) -> None:
    shell.create_key("alice")
    token = shell.items("key", "list")[0]
    listed = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s"
    keys = orjson.dumps({"keys": [token]})
    with scripted_server(shell.state_dir, [HELLO, listed % (len(keys), keys), b""]):
        assert shell.json("key", "disable", "alice")["state"] == "disabled"


def test_reading_creates_no_state_directory(shell: CommandRunner) -> None:
    for arguments in (("key", "list"), ("logs", "tail"), ("group", "list")):
        result = shell(*arguments)
        assert result.exit_code == 1
        assert f"There is no state directory {shell.state_dir}" in result.stderr
    assert not shell.state_dir.exists()


def test_a_path_too_long_for_a_socket(shell: CommandRunner, tmp_path: Path) -> None:
    result = shell("key", "mint", "--name", "a", "--state-dir", str(tmp_path / ("x" * 100)))
    assert result.exit_code == 1
    assert "the maximum is 107" in result.stderr


def test_an_invalid_database(shell: CommandRunner) -> None:
    shell.state_dir.mkdir()
    (shell.state_dir / DATABASE_NAME).write_bytes(b"not a database, just text" * 100)
    result = shell("key", "list")
    assert result.exit_code == 1
    assert DATABASE_NAME in result.stderr


def test_a_directory_of_another_user(shell: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.create_key("alice")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    result = shell("key", "list")
    assert result.exit_code == 1
    assert "run this command as the gateway's own user: sudo -u " in result.stderr


def test_precedence_of_state_directories(shell: CommandRunner, tmp_path: Path) -> None:
    """The flag, the environment, the file, what systemd says, `var`: the first that is there."""
    file = tmp_path / "channels.yaml"
    file.write_text(f"state_dir: {tmp_path / 'of-file'}\n")
    named, flag = ["--config", str(file)], ["--state-dir", str(tmp_path / "of-flag")]
    create_key = ("key", "mint", "--name", "a")
    assert shell(*create_key, *named, *flag).exit_code == 0
    assert (tmp_path / "of-flag" / DATABASE_NAME).exists()
    assert shell(*create_key, *named).exit_code == 0
    assert (shell.state_dir / DATABASE_NAME).exists()
    shell.environ.clear()
    assert shell(*create_key, *named).exit_code == 0
    assert (tmp_path / "of-file" / DATABASE_NAME).exists()
    assert shell(*create_key).exit_code == 0
    assert (tmp_path / "var" / DATABASE_NAME).exists()


def test_the_first_key_after_a_demo(shell: CommandRunner, tmp_path: Path) -> None:
    """Nothing is configured, and all that `var` has is the demonstration's own directory."""
    shell.environ.clear()
    (tmp_path / "var" / "demo").mkdir(parents=True)
    result = shell("key", "mint", "--name", "a")
    assert (result.exit_code, result.stdout[:3]) == (0, "sk-"), result.stderr
    assert (tmp_path / "var" / DATABASE_NAME).exists()


def test_a_missing_configuration_file(shell: CommandRunner, tmp_path: Path) -> None:
    shell.environ.clear()
    file = tmp_path / "channels.yaml"
    result = shell("key", "list", "--config", str(file))
    assert result.exit_code == 78
    assert str(file) in result.stderr
