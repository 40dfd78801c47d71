"""`gateway key import`: many keys from a file, all of which are made or none."""

from __future__ import annotations

import csv
import errno
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.store.keys import digest, well_formed
from tests.cli.cli_runner import AdminGateway, CommandRunner
from tests.support.paths import ROOT

SECRET = "an-old-key-of-ours-4471"


@pytest.fixture
def roster(tmp_path: Path) -> Path:
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


def test_the_answer_is_a_table_of_keys(
    shell: CommandRunner, gateway: AdminGateway, roster: Path
) -> None:
    result = shell("key", "import", str(roster))
    assert result.exit_code == 0
    made = rows(result.stdout)
    assert [set(each) for each in made] == [{"id", "name", "key"}] * 3
    assert [each["name"] for each in made] == ["alice", "Ü", "carol"]
    assert [well_formed(each["key"]) for each in made] == [True, False, True]
    assert made[1]["key"] == SECRET
    for each in made:
        token = gateway.registry.find(digest(each["key"]))
        assert token is not None
        assert token.id == each["id"]
    token = gateway.registry.find(digest(made[0]["key"]))
    assert token is not None
    assert (token.models, token.note) == (("beta-*", "alpha-*"), "ours, for now")
    assert (token.limits.requests_per_minute, token.limits.budget) == (600, 5_000_000_000_000)
    assert "Created keys: 3, printed above." in result.stderr
    assert SECRET not in result.stderr


def test_a_file_that_only_its_owner_reads(
    shell: CommandRunner, roster: Path, tmp_path: Path
) -> None:
    out = tmp_path / "keys.csv"
    result = shell("key", "import", str(roster), "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [each["name"] for each in rows(out.read_text())] == ["alice", "Ü", "carol"]
    assert f"Created keys: 3, in {out}." in result.stderr


def test_no_file_is_overwritten(shell: CommandRunner, roster: Path, tmp_path: Path) -> None:
    out = tmp_path / "keys.csv"
    out.write_text("precious")
    shell.mint("alice")
    for target, why in ((out, "already exists: choose a new file."), (tmp_path / "no" / "dir", "")):
        result = shell("key", "import", str(roster), "--out", str(target))
        assert (result.exit_code, result.stdout) == (1, "")
        assert why in result.stderr
        assert "No key was created." in result.stderr
    assert out.read_text() == "precious"
    assert len(shell.json("key", "list")) == 1


def test_a_dry_run_makes_nothing(shell: CommandRunner, roster: Path, tmp_path: Path) -> None:
    out = tmp_path / "keys.csv"
    result = shell("key", "import", str(roster), "--dry-run", "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Valid keys: 3. This was a dry run: no key was created." in result.stderr
    assert not out.exists()
    assert shell.json("key", "list") == []
    told = shell.json("key", "import", str(roster), "--dry-run")
    assert told == {"ok": True, "checked": 3, "made": 0, "keys": []}


def test_every_wrong_cell_is_named_before_a_key_is_made(
    shell: CommandRunner, tmp_path: Path
) -> None:
    minted = shell.mint("owner")
    file = tmp_path / "team.csv"
    lines = ["name,group,expires,rpm,addresses,key", *["good,,,,,"] * 60]
    lines += [" ,nope,soon,x,10.0.0.1/8,short", f"thief,,,,,{minted['key']}", "late,,2020-01-01,,,"]
    file.write_text("\n".join(lines))
    result = shell("key", "import", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    told = [line.split(": ", 1) for line in result.stderr.splitlines()]
    assert [where for where, *_ in told] == [
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
    assert told[6][1] == f"This is already the key of owner ({minted['id']})."
    assert minted["key"] not in result.stderr
    assert len(shell.json("key", "list")) == 1
    result = shell("key", "import", str(file), "--json")
    assert result.exit_code == 1
    assert '"line": 63' in result.stdout
    assert minted["key"] not in result.stdout


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
def test_files_that_are_none(
    shell: CommandRunner, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "team.csv"
    file.write_bytes(content)
    result = shell("key", "import", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert not shell.state_dir.exists()


def test_hundreds_in_several_calls(
    shell: CommandRunner, gateway: AdminGateway, tmp_path: Path
) -> None:
    told = shell.json("key", "import", str(many(tmp_path, 230)))
    assert (told["ok"], told["checked"], told["made"]) == (True, 230, 230)
    assert [each["name"] for each in told["keys"]] == [f"key {number}" for number in range(230)]
    assert len(shell.json("key", "list")) == 230


def test_what_was_made_is_kept_when_the_rest_fails(
    shell: CommandRunner, gateway: AdminGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group of the second call's keys goes between the check and the making."""
    shell("group", "add", "team", "--models", "*")
    file = tmp_path / "team.csv"
    file.write_text("name,group\n" + "first,default\n" * 50 + "second,team\n" * 20)
    out = tmp_path / "keys.csv"
    from gateway.cli import key_import

    real = key_import._create_keys

    def make(client: Any, *rest: Any) -> Any:
        client.delete("/groups/team")
        return real(client, *rest)

    monkeypatch.setattr(key_import, "_create_keys", make)
    result = shell("key", "import", str(file), "--out", str(out))
    assert result.exit_code == 1
    assert f"Created keys: 50, in {out}." in result.stderr
    assert "Stopped: the keys from line 52 on are not confirmed." in result.stderr
    assert "line 52, group: There is no group team" in result.stderr
    assert len(rows(out.read_text())) == 50
    assert {each["name"] for each in shell.json("key", "list")} == {"first"}


def test_a_bar_where_somebody_looks(shell: CommandRunner, tmp_path: Path) -> None:
    """On a terminal's stderr; the answer on stdout has nothing of it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "key", "import", str(many(tmp_path, 120))],
        env=os.environ | shell.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        seen = _all_of(ours)  # read while it is written: a terminal holds little
        told, _ = process.communicate(timeout=10)
    finally:
        process.kill()
        os.close(ours)
    assert process.returncode == 0
    assert "Validating and creating keys" in seen
    assert "\x1b" not in told.decode()
    assert len(rows(told.decode())) == 120


def _all_of(terminal: int) -> str:
    seen = b""
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError as end:  # how Linux says that nobody writes any more
            assert end.errno == errno.EIO
            return seen.decode()
        if not part:
            return seen.decode()
        seen += part
