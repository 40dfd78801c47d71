"""`gateway key import`: creates all keys of a file, or none."""

from __future__ import annotations

import csv
import errno
import os
import pty
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.store.keys import digest, well_formed
from tests.cli.cli_runner import AdminGateway, CommandRunner

SECRET = "an-old-key-of-ours-4471"


@pytest.fixture
def team_csv(tmp_path: Path) -> Path:
    """Three keys, one of which exists already."""
    file = tmp_path / "team.csv"
    file.write_text(
        "name,group,models,rpm,budget,note,key\n"
        f'alice,default,beta-*; alpha-*,600,5M,"ours, for now",\nÜ,,,,,,{SECRET}\ncarol,,,,,,\n',
        encoding="utf-8-sig",
    )
    return file


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def many(tmp_path: Path, count: int) -> Path:
    file = tmp_path / "many.csv"
    file.write_text("name\n" + "".join(f"key {number}\n" for number in range(count)))
    return file


def test_the_output_is_csv(shell: CommandRunner, gateway: AdminGateway, team_csv: Path) -> None:
    result = shell("key", "import", str(team_csv))
    assert result.exit_code == 0
    created = rows(result.stdout)
    assert [set(each) for each in created] == [{"id", "name", "key"}] * 3
    assert [each["name"] for each in created] == ["alice", "Ü", "carol"]
    assert [well_formed(each["key"]) for each in created] == [True, False, True]
    assert created[1]["key"] == SECRET
    for each in created:
        token = gateway.registry.find(digest(each["key"]))
        assert token is not None
        assert token.id == each["id"]
    token = gateway.registry.find(digest(created[0]["key"]))
    assert token is not None
    assert (token.models, token.note) == (("beta-*", "alpha-*"), "ours, for now")
    assert (token.limits.requests_per_minute, token.limits.budget) == (600, 5_000_000_000_000)
    assert "Created keys: 3, printed above." in result.stderr
    assert SECRET not in result.stderr


def test_the_output_file_is_private(shell: CommandRunner, team_csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "keys.csv"
    result = shell("key", "import", str(team_csv), "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [each["name"] for each in rows(out.read_text())] == ["alice", "Ü", "carol"]
    assert f"Created keys: 3, in {out}." in result.stderr


def test_no_file_is_overwritten(shell: CommandRunner, team_csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "keys.csv"
    out.write_text("precious")
    shell.create_key("alice")
    for target, why in ((out, "already exists: choose a new file."), (tmp_path / "no" / "dir", "")):
        result = shell("key", "import", str(team_csv), "--out", str(target))
        assert (result.exit_code, result.stdout) == (1, "")
        assert why in result.stderr
        assert "No key was created." in result.stderr
    assert out.read_text() == "precious"
    assert len(shell.items("key", "list")) == 1


def test_a_dry_run_creates_nothing(shell: CommandRunner, team_csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "keys.csv"
    result = shell("key", "import", str(team_csv), "--dry-run", "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Valid keys: 3. This was a dry run: no key was created." in result.stderr
    assert not out.exists()
    assert shell.items("key", "list") == []
    answer = shell.json("key", "import", str(team_csv), "--dry-run")
    assert answer == {"ok": True, "checked": 3, "made": 0, "keys": []}


def test_every_invalid_cell_is_reported_and_no_key_is_created(
    shell: CommandRunner, tmp_path: Path
) -> None:
    existing = shell.create_key("owner")
    file = tmp_path / "team.csv"
    lines = ["name,group,expires,rpm,addresses,key", *["good,,,,,"] * 60]
    lines += [
        " ,nope,soon,x,10.0.0.1/8,short",
        f"thief,,,,,{existing['key']}",
        "late,,2020-01-01,,,",
    ]
    file.write_text("\n".join(lines))
    result = shell("key", "import", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    lines = [line.split(": ", 1) for line in result.stderr.splitlines()]
    assert [where for where, *_ in lines] == [
        "line 62, addresses",
        "line 62, expires",
        "line 62, group",
        "line 62, key",
        "line 62, name",
        "line 62, rpm",
        "line 63, key",
        "line 64, expires",
        "Errors",
    ]
    assert lines[6][1] == f"This is already the key of owner ({existing['id']})."
    assert existing["key"] not in result.stderr
    assert len(shell.items("key", "list")) == 1
    result = shell("key", "import", str(file), "--json")
    assert result.exit_code == 1
    assert '"line": 63' in result.stdout
    assert existing["key"] not in result.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"name,colour\nalice,red\n",
            "line 1, colour: is not a column; the first line must be a header of comma-separated",
        ),
        (b"group\ndefault\n", "line 1, name: is missing"),
        (b"", "line 1, name: is missing"),
        (b"name\n", "there is no line after its header"),
        (b"name\n\xff\xfe\n", "The file is not in UTF-8"),
    ],
)
def test_invalid_files(shell: CommandRunner, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "team.csv"
    file.write_bytes(content)
    result = shell("key", "import", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert not shell.state_dir.exists()


def test_hundreds_of_keys_in_several_requests(
    shell: CommandRunner, gateway: AdminGateway, tmp_path: Path
) -> None:
    answer = shell.json("key", "import", str(many(tmp_path, 230)))
    assert (answer["ok"], answer["checked"], answer["made"]) == (True, 230, 230)
    assert [each["name"] for each in answer["keys"]] == [f"key {number}" for number in range(230)]
    assert len(shell.items("key", "list")) == 230


def test_created_keys_are_saved_if_a_later_request_fails(
    shell: CommandRunner, gateway: AdminGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group of the second call's keys goes between the check and the making."""
    shell("group", "add", "team", "--models", "*")
    file = tmp_path / "team.csv"
    file.write_text("name,group\n" + "first,default\n" * 50 + "second,team\n" * 20)
    out = tmp_path / "keys.csv"
    from gateway.cli import key_import

    create_keys = key_import._create_keys

    def create_after_change(client: Any, *rest: Any) -> Any:
        client.delete("/groups/team")
        return create_keys(client, *rest)

    monkeypatch.setattr(key_import, "_create_keys", create_after_change)
    result = shell("key", "import", str(file), "--out", str(out))
    assert result.exit_code == 1
    assert f"Created keys: 50, in {out}." in result.stderr
    assert "Stopped: the keys from line 52 on are not confirmed." in result.stderr
    assert "line 52, group: There is no group team" in result.stderr
    assert len(rows(out.read_text())) == 50
    assert {each["name"] for each in shell.items("key", "list")} == {"first"}


@pytest.mark.processes
def test_a_progress_bar_on_a_terminal(shell: CommandRunner, tmp_path: Path) -> None:
    """On a terminal's stderr; the answer on stdout has nothing of it."""
    ours, theirs = pty.openpty()
    terminal = replace(shell, environ=shell.environ | {"TERM": "xterm"})
    process = terminal.process("key", "import", str(many(tmp_path, 120)), stderr=theirs)
    os.close(theirs)
    try:
        output = _all_of(ours)  # read while it is written: a terminal holds little
        stdout, _ = process.communicate(timeout=10)
    finally:
        process.kill()
        os.close(ours)
    assert process.returncode == 0
    assert "Validating and creating keys" in output
    assert "\x1b" not in stdout.decode()
    assert len(rows(stdout.decode())) == 120


def _all_of(terminal: int) -> str:
    output = b""
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError as end:  # how Linux says that nobody writes any more
            assert end.errno == errno.EIO
            return output.decode()
        if not part:
            return output.decode()
        output += part
