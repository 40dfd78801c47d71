"""Permissions: whose file it is, and exit codes as documented. Run without the right to read files
of others, which root has."""

from __future__ import annotations

import getpass
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.file_errors import describe_owner, file_error_reason

WITHOUT_RIGHTS = """
import ctypes, sys
for capability in (1, 2, 3):  # DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
import os
os.execv(sys.executable, [sys.executable, "-m", "gateway", *sys.argv[1:]])
"""


def gateway(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and the last line on stderr."""
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    return result.returncode, result.stderr.splitlines()[-1]


def owned(path: Path, mode: str) -> str:
    user = getpass.getuser()
    whose = f"{path} belongs to {user} (mode {mode})"
    return f"Permission denied: {whose}, and this process runs as {user}"


def test_the_owner_of_a_file_and_of_what_hides_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    assert describe_owner(tmp_path / "missing" / "file") == (
        f"{tmp_path} belongs to {getpass.getuser()} (mode 0750)"
    )
    missing = FileNotFoundError(2, "No such file or directory")
    assert file_error_reason(missing, tmp_path) == "No such file or directory"


@pytest.mark.slow("starts the daemon several times")
@pytest.mark.processes
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    config, hidden, state = tmp_path / "c.yaml", tmp_path / "hidden", tmp_path / "state"
    config.write_text(f"state_dir: {state}\n")
    hidden.mkdir()
    (hidden / "c.yaml").write_text("")
    state.mkdir()
    (state / "gateway.db").write_bytes(b"x")
    (state / "gateway.db").chmod(0)
    code, line = gateway("serve", "--port", "0", "--config", config)
    assert (code, owned(state / "gateway.db", "0000") in line) == (78, True)
    state.chmod(0)
    code, line = gateway("serve", "--port", "0", "--config", config)
    assert (code, owned(state, "0000") in line) == (78, True)
    config.chmod(0)
    assert gateway("check", "--config", config) == (
        78,
        f"{config}: cannot be read: {owned(config, '0000')}",
    )
    hidden.chmod(0)
    assert gateway("check", "--config", hidden / "c.yaml") == (
        78,
        f"{hidden / 'c.yaml'}: cannot be read: {owned(hidden, '0000')}",
    )
    code, line = gateway("key", "list", "--state-dir", hidden / "state")
    assert (code, owned(hidden, "0000") in line) == (1, True)
    for path in (hidden, state):
        path.chmod(0o700)
