"""`gateway serve --demo`: the printed commands work in a shell with the real curl."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.resilience.chaos.process import GatewayProcess, create_key

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")

ENDS = {
    "chat-completions": "data: [DONE]",
    "messages": "event: message_stop",
    "responses": "event: response.completed",
}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path, "--demo", "--port", "0") as gateway:
        gateway.wait_for_output("Ctrl-C stops it.")
        yield gateway


def commands(output: str) -> dict[str, str]:
    """The printed commands by the name above each."""
    match = re.findall(r"^# (\S+)\n(curl .*?)\n\n", output, re.MULTILINE | re.DOTALL)
    return dict(match)


def key_of(output: str) -> str:
    match = re.search(r"^key: (sk-\S+)$", output, re.MULTILINE)
    assert match
    return match[1]


@pytest.mark.processes
def test_every_printed_command_works(demo: GatewayProcess, tmp_path: Path) -> None:
    printed = commands(demo.stdout)
    assert list(printed) == list(ENDS)
    for name, command in printed.items():
        done = subprocess.run(
            ["sh", "-c", f"{command} -sS -w '%{{stderr}}%{{http_code}} %{{content_type}}'"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert done.stderr.startswith("200 text/event-stream")
        assert ENDS[name] in done.stdout
        assert done.stdout.count("data: ") > 5
    demo.signal(signal.SIGINT)
    assert demo.wait() == 0
    assert "Traceback" not in demo.stderr
    with closing(sqlite3.connect(tmp_path / "var/demo/gateway.db")) as ledger:
        states = ledger.execute("SELECT endpoint, state, usage_source FROM requests").fetchall()
    assert sorted(states) == [
        (f"/v1/{path}", "ok", "upstream") for path in ("chat/completions", "messages", "responses")
    ]


@pytest.mark.processes
def test_settings_of_clients_are_printed(demo: GatewayProcess) -> None:
    output, address = demo.stdout, demo.address()
    assert re.search(rf"chat and responses clients: +{address}/v1$", output, re.MULTILINE)
    assert re.search(rf"messages clients: +{address}$", output, re.MULTILINE)
    assert all(key_of(output) in command for command in commands(output).values())


@pytest.mark.processes
def test_the_password_signs_in_to_the_console(demo: GatewayProcess) -> None:
    match = re.search(
        r"^console: (\S+)  password for this run: (\S{16})$", demo.stdout, re.MULTILINE
    )
    assert match and match[1] == f"{demo.address()}/console"
    statuses = []
    for password in (match[2], "another password"):
        command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"]
        command += ["--data-urlencode", f"password={password}", f"{match[1]}/sign-in"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        statuses.append(done.stdout)
    assert statuses == [f"303 {match[1]}", "403 "]


@pytest.mark.processes
def test_each_start_on_a_directory_that_was_empty_is_empty(tmp_path: Path) -> None:
    state = tmp_path / "mine"
    state.mkdir()
    start = ("--demo", "--port", "0", "--state-dir", state)
    with GatewayProcess(tmp_path, *start) as demo:
        demo.wait_for_output("Ctrl-C stops it.")
        first = key_of(demo.stdout)
        left = state / "left"
        left.mkdir()
        (left / "over").touch()
        demo.signal(signal.SIGTERM)
        assert demo.wait() == 0
    with GatewayProcess(tmp_path, *start) as second:
        second.wait_for_output("Ctrl-C stops it.")
        assert key_of(second.stdout) != first
        refused = ["curl", "-sS", "-H", f"x-api-key: {first}", f"{second.address()}/v1/models"]
        done = subprocess.run(refused, capture_output=True, text=True, timeout=30, check=True)
        assert "Invalid token" in done.stdout
        assert not left.exists()


@pytest.fixture
def refusal(refused_start: Callable[..., tuple[int, str]]) -> Callable[[Path], str]:
    """The last line of a demo that will not start on a directory, where nothing changes."""

    def start(state: Path) -> str:
        before = sorted(state.rglob("*"))
        code, text = refused_start("--demo", "--port", "0", "--state-dir", state)
        assert code == 1
        assert sorted(state.rglob("*")) == before
        assert "Traceback" not in text
        return text.splitlines()[-1]

    return start


def test_other_directories_are_never_emptied(
    tmp_path: Path, refusal: Callable[[Path], str]
) -> None:
    """A ledger beside the directory that a demo made, as in `var`, which has the same name as the
    mark."""
    asyncio.run(create_key(tmp_path))
    state = tmp_path / "state"
    (state / "demo").mkdir()
    assert refusal(state) == (
        f"gateway: {state} was not created by a demo, which would empty it: choose a new or an "
        "empty directory"
    )
    (state / "demo").rmdir()
    assert "was not created by a demo" in refusal(state)
    foreign = tmp_path / "letters"
    foreign.mkdir()
    (foreign / "letter.txt").touch()
    assert "is no state directory" in refusal(foreign)


def test_a_path_too_long_for_a_socket(tmp_path: Path, refusal: Callable[[Path], str]) -> None:
    state = tmp_path / ("x" * 100)
    assert "the maximum is 107" in refusal(state)
    assert not state.exists()


@pytest.mark.processes
def test_a_running_demo_is_not_emptied(
    demo: GatewayProcess, tmp_path: Path, refusal: Callable[[Path], str]
) -> None:
    state = tmp_path / "var/demo"
    assert refusal(state) == f"gateway: {state} is in use by process {demo.pid}"
    command = commands(demo.stdout)["messages"]
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30, check=True)
    assert b"message_stop" in done.stdout
