"""No command ends in a traceback: for no user, no file, and no answer of another release."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from gateway.admin.socket_path import socket_path
from gateway.cli.errors import EX_SOFTWARE
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from tests.cli.answering_server import answering_each
from tests.cli.cli_runner import CommandRunner
from tests.cli.every_command import Outcome, run_all
from tests.support.paths import ROOT

OTHER_USER = 65534
WITHOUT_POWER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Root sees what is closed to others, unless it has lost these."""


def troubles(outcomes: Sequence[Outcome], accepted: Sequence[int] = ()) -> list[Outcome]:
    """Those that raised something, printed a traceback, or met what nobody expects."""
    return [
        each
        for each in outcomes
        if each.error
        or "Traceback" in each.output
        or (each.exit_code == EX_SOFTWARE and EX_SOFTWARE not in accepted)
    ]


@pytest.mark.processes
@pytest.mark.slow("every command, in a process without the rights of root")
@pytest.mark.parametrize("option", ["--config", "--state-dir"])
def test_directories_of_another_user(option: str, tmp_path: Path) -> None:
    """Without the rights of root, if the tests run as root."""
    closed, own = tmp_path / "closed", tmp_path / "own"
    (closed / "etc" / "state").mkdir(parents=True)
    own.mkdir()
    config = closed / "etc" / "channels.yaml"
    config.write_text(f"state_dir: {closed}/etc/state\n")
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv")
        prefix = WITHOUT_POWER
        for path in (closed, *closed.rglob("*")):
            os.chown(path, OTHER_USER, OTHER_USER)
    closed.chmod(0o700 if prefix else 0)
    place = config if option == "--config" else config.parent / "state"
    program = (sys.executable, "-m", "tests.cli.every_command")
    try:
        done = subprocess.run(
            [*prefix, *program, orjson.dumps({option: str(place)}), str(config), b"{}"],
            cwd=own,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDEVMODE": ""},
            capture_output=True,
            timeout=60,
        )
    finally:
        closed.chmod(0o700)
    assert b"Traceback" not in done.stderr, done.stderr
    outcomes = [Outcome(**each) for each in orjson.loads(done.stdout)]
    assert troubles(outcomes) == []
    refused = {each.command: each.output for each in outcomes if each.exit_code}
    assert "Permission denied" in refused["key list"]
    assert str(closed) in refused["key list"]
    doctor = next(each.output for each in outcomes if each.command == "doctor")
    assert "Permission denied" in doctor
    assert "checks." in doctor


KINDS: dict[str, Callable[[Path], object]] = {
    "directory": Path.mkdir,
    "binary": lambda path: path.write_bytes(secrets.token_bytes(5000)),
    "loop": lambda path: path.symlink_to(path),
    "huge": lambda path: (path.touch(), os.truncate(path, 3 * 2**30)),
}


@pytest.mark.slow("every command, twice")
@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_something_else(kind: str, shell: CommandRunner, tmp_path: Path) -> None:
    """As the configuration, as the state directory, and as whatever else a command reads."""
    file = tmp_path / "file"
    KINDS[kind](file)
    for options in ({"--config": str(file)}, {"--state-dir": str(file)}):
        assert troubles(run_all(options, str(file), shell.environ)) == []


@pytest.mark.slow("every command")
@pytest.mark.parametrize(
    ("name", "kind"),
    [(DATABASE_NAME, "binary"), ("lock", "directory"), ("admin.sock", "binary")],
)
def test_a_state_directory_with_something_else(
    name: str, kind: str, shell: CommandRunner, tmp_path: Path
) -> None:
    shell.state_dir.mkdir(mode=0o700)
    (shell.state_dir / "lock").touch()
    (shell.state_dir / name).unlink(missing_ok=True)
    KINDS[kind](shell.state_dir / name)
    assert troubles(run_all({}, str(tmp_path / "none"), shell.environ)) == []


def object_of(fields: str) -> bytes:
    """An answer that lacks what newer releases have: collections of one record without a field."""
    names = ("keys", "groups", "accounts", "budgets", "usage", "requests", "responses", "alerts")
    more = ("replicas", "admins", "tokens", "sessions", "entries", "audit", "attempts", "results")
    return orjson.dumps(orjson.loads(fields) | {name: [{}] for name in (*names, *more)})


ANSWERS = {
    "older": (200, object_of('{"version": "0.0.1", "pid": 1, "configured": true, "ok": true}')),
    "list": (200, b"[]"),
    "nothing": (200, b""),
    "no JSON": (500, b"<html>"),
}


@contextmanager
def answering(state_dir: Path, status: int, body: bytes) -> Iterator[None]:
    """A process that holds the state directory and answers everything with the same."""
    head = f"HTTP/1.1 {status} Answer\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    with lock_state_dir(state_dir), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path(state_dir)))
        listener.listen()

        def answer(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(head.encode() + body)

        with answering_each(listener, answer):
            yield


@pytest.mark.slow("every command")
@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_of_another_release(answer: str, shell: CommandRunner, tmp_path: Path) -> None:
    with answering(shell.state_dir, *ANSWERS[answer]):
        outcomes = run_all({}, str(tmp_path / "none"), shell.environ)
    assert troubles(outcomes, accepted=[EX_SOFTWARE]) == []
    outputs = [each.output for each in outcomes if each.exit_code == EX_SOFTWARE]
    assert all("or restart it" in text for text in outputs), outputs


def test_replicas_of_a_gateway_that_has_no_leases_yet(shell: CommandRunner) -> None:
    replica = {
        **{"name": "r1", "state": "serving", "heartbeat_age": 0.5, "requests": 0, "unwritten": 0},
        **{"is_leader": True, "is_self": True, "clock_offset": 0.0, "spool_bytes": 0},
        **{"config_hash": "abc", "config_differs": False, "version": "0.0.1", "schema": 16},
        "address": "127.0.0.1:8081",
    }
    answer = {"version": "0.0.1", "configured": True, "replicas": [replica]}
    with answering(shell.state_dir, 200, orjson.dumps(answer)):
        result = shell("replicas")
    assert result.exit_code == 0, result.output
    assert "r1 (leader, self)" in result.output
