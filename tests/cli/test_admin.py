"""`gateway admin`: the password and the sessions of the console."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.cli.cli_runner import CommandRunner
from tests.cli.running_gateway import running_gateway
from tests.console.browser import PASSWORD, open_browser
from tests.support.paths import ROOT


def set_password(shell: CommandRunner, typed: str, *flags: str) -> Result:
    return CliRunner().invoke(
        main, ["admin", "password", *flags], input=typed, env=shell.environ, catch_exceptions=False
    )


def test_the_password_is_read_from_standard_input(shell: CommandRunner) -> None:
    """Also before a gateway ever ran."""
    shell.create_key("first")
    assert "No password is set" in shell("admin", "sessions").stderr
    result = set_password(shell, f"{PASSWORD}\nanother line\n")
    assert (result.exit_code, result.stderr) == (0, "The password is set.\n")
    assert "No sessions." in shell("admin", "sessions").stderr
    assert shell.json("admin", "sessions") == {"password": True, "sessions": []}
    assert set_password(shell, PASSWORD, "--json").stdout.strip() == '{\n  "ended": 0\n}'


def test_a_short_password_is_refused(shell: CommandRunner) -> None:
    for typed in ("", "short\n", "eleven char\n"):
        result = set_password(shell, typed)
        assert result.exit_code == 1
        assert "at least 12 characters" in result.stderr
        assert "Traceback" not in result.stderr
    assert shell.json("admin", "sessions")["password"] is False


def test_sessions_are_listed_and_ended(shell: CommandRunner) -> None:
    with running_gateway(shell.state_dir, lambda _: []) as gateway:

        async def sign_in() -> int:
            async with open_browser(
                gateway.running, **{"user-agent": "a \u202ebrowser"}
            ) as browser:
                return (await browser.sign_in()).status

        assert gateway.do(sign_in) == 403
        set_password(shell, PASSWORD)
        assert gateway.do(sign_in) == 303
        listed = shell("admin", "sessions").stdout
        assert "127.0.0.1" in listed
        assert "a \\u202ebrowser" in listed
        assert shell("admin", "sessions", "--end-all").stderr == "1 session ended.\n"
        gateway.do(sign_in)
        gateway.do(sign_in)
        assert shell.json("admin", "sessions", "--end-all") == {"ended": 2}
        gateway.do(sign_in)
        assert set_password(shell, PASSWORD).stderr == "The password is set. 1 session ended.\n"


@pytest.mark.processes
def test_on_a_terminal_the_password_is_typed_twice_without_echo(shell: CommandRunner) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "admin", "password"],
        env=os.environ | shell.environ | {"PYTHONPATH": str(ROOT)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    output = b""
    for prompt in (b"New password:", b"Repeat for confirmation:"):
        while prompt not in output:
            output += os.read(ours, 1000)
        os.write(ours, f"{PASSWORD}\n".encode())
    assert process.wait(20) == 0
    while b"is set" not in output:
        output += os.read(ours, 1000)
    os.close(ours)
    assert PASSWORD.encode() not in output
    assert shell.json("admin", "sessions")["password"] is True
