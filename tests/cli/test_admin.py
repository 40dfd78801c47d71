"""`gateway admin`: the password and the sessions of the console."""

from __future__ import annotations

import getpass
import os
import pty
import subprocess
import sys
from pathlib import Path

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
    assert shell.json("admin", "sessions") == {"password": True, "items": [], "next": None}
    assert set_password(shell, PASSWORD, "--json").stdout.strip() == '{\n  "ended": 0\n}'


def test_a_short_password_is_refused(shell: CommandRunner) -> None:
    for typed in ("", "short\n", "eleven char\n"):
        result = set_password(shell, typed)
        assert result.exit_code == 1
        assert "at least 12 characters" in result.stderr
        assert "Traceback" not in result.stderr
    assert shell.json("admin", "sessions")["password"] is False


@pytest.mark.parametrize(
    "arguments", [("password",), ("password", "eve"), ("add", "eve", "--role", "viewer")]
)
def test_an_empty_standard_input_is_told_what_is_missing(
    shell: CommandRunner, arguments: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(main, ["admin", *arguments], input="", env=shell.environ)
    assert result.exit_code == 1
    assert "its first line has to be the password" in result.stderr


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


def test_backups_and_their_restoration_are_audited(shell: CommandRunner, tmp_path: Path) -> None:
    """By a running gateway, without one, and in what was restored."""
    shell.create_key("first")
    with running_gateway(shell.state_dir, lambda _: []):
        shell("db", "backup", str(tmp_path / "one.db"))
    assert shell("db", "backup", str(tmp_path / "two.db")).stderr == ""
    shell.create_key("lost")
    assert shell("db", "restore", str(tmp_path / "two.db")).exit_code == 0
    rows = shell.items("admin", "audit", "--what", "db")
    assert [(row["action"], row["target"]) for row in rows] == [
        ("db.restore", str(tmp_path / "two.db")),
        ("db.backup", str(tmp_path / "one.db")),
    ]
    user = f"{os.geteuid()}/{getpass.getuser()}"
    assert [row["actor"] for row in rows] == [f"command: {user}", f"socket: {user}"]
    assert "lost" not in str(shell.items("admin", "audit"))


def test_admins_tokens_and_audit(shell: CommandRunner) -> None:
    def typed(text: str, *arguments: str) -> Result:
        return CliRunner().invoke(
            main, ["admin", *arguments], input=text, env=shell.environ, catch_exceptions=False
        )

    assert typed(PASSWORD, "add", "Alice", "--role", "viewer").stderr == "Added alice as viewer.\n"
    assert typed(PASSWORD, "add", "alice", "--role", "admin").exit_code == 1
    assert typed(PASSWORD, "add", "a b", "--role", "admin").exit_code == 1
    assert typed(PASSWORD, "password", "nobody").exit_code == 1
    assert typed(PASSWORD, "password", "alice").stderr == "The password is set.\n"
    assert shell("admin", "set", "alice", "--role", "admin").exit_code == 0
    refused = shell("admin", "remove", "alice")
    assert (refused.exit_code, "add another one first" in refused.stderr) == (1, True)
    assert [each["role"] for each in shell.items("admin", "list")] == ["admin"]
    created = shell("admin", "token", "create", "ci", "--scope", "keys", "--expires", "30d")
    secret = created.stdout.strip()
    assert secret.startswith("gwa_")
    assert secret not in created.stderr
    listed = shell("admin", "token", "list").stdout
    assert secret[:8] in listed
    assert secret not in listed
    assert shell("admin", "token", "revoke", "ci").exit_code == 0
    assert shell("admin", "token", "revoke", "ci").exit_code == 1
    assert shell.items("admin", "token", "list") == []
    actions = [row["action"] for row in shell.items("admin", "audit")][::-1]
    assert actions == [
        *("admin.add", "admin.set", "admin.set"),
        *("admin_token.create", "admin_token.revoke"),
    ]
    assert shell.items("admin", "audit", "--who", "nobody") == []
    assert shell.items("admin", "audit", "--what", "admin_token.", "--limit", "1") == (
        shell.items("admin", "audit", "--limit", "1")
    )
    assert "role=viewer" in shell("admin", "audit", "--since", "1h").stdout
    assert PASSWORD not in str(shell.items("admin", "audit"))
