"""The lock of the state directory: one holder, told apart by pid, gone with its process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.store.errors import StateLocked, StoreError
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir

HOLDER = """
import sys, time
from pathlib import Path
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
with lock_state_dir(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(30)
"""


def test_the_directory_is_created_private(tmp_path: Path) -> None:
    state_dir = tmp_path / "a" / "state"
    with lock_state_dir(state_dir):
        assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700
        assert (state_dir / "lock").read_text() == f"{os.getpid()}\n"
    with lock_state_dir(state_dir):
        pass


def test_a_second_holder_learns_the_pid_of_the_first_until_it_dies(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(StateLocked, match=f"process {holder.pid}") as caught,
            lock_state_dir(tmp_path),
        ):
            pass
        assert caught.value.pid == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait(5)
    with lock_state_dir(tmp_path):
        pass


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="state directory"), lock_state_dir(tmp_path / "file"):
        pass


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o755)
    (other / "letter.txt").write_text("not ours")
    with pytest.raises(StoreError, match="no state directory"), lock_state_dir(other):
        pass
    assert other.stat().st_mode & 0o777 == 0o755
    restored = tmp_path / "restored"
    restored.mkdir()
    (restored / DATABASE_NAME).touch()
    with lock_state_dir(restored):
        assert restored.stat().st_mode & 0o777 == 0o700


def test_a_demo_directory_does_not_mark_its_parent(tmp_path: Path) -> None:
    (tmp_path / "var" / "demo").mkdir(parents=True)
    with lock_state_dir(tmp_path / "var"):
        pass
    (tmp_path / "site" / "demo").mkdir(parents=True)
    (tmp_path / "site" / "index.html").touch()
    with pytest.raises(StoreError, match="no state directory"), lock_state_dir(tmp_path / "site"):
        pass
