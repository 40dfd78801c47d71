"""What /proc and the control groups tell of a process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from gateway.doctor.process import read_process


def test_this_process() -> None:
    process = read_process(os.getpid())
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert process.open_files == (2**62 if soft == resource.RLIM_INFINITY else soft)
    assert process.variables is not None


def test_a_service(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    unit = "system.slice/gateway.service"
    (proc / "7").mkdir(parents=True)
    (cgroups / unit).mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(f"0::/{unit}\n")
    (proc / "7" / "limits").write_text("Max open files            1024     4096     files\n")
    (proc / "7" / "environ").write_bytes(b"WATCHDOG_USEC=30000000\0CHAT_KEY=secret\0")
    (cgroups / unit / "memory.max").write_text("1610612736\n")
    (cgroups / unit / "memory.high").write_text("1073741824\n")
    (cgroups / "system.slice" / "memory.max").write_text("max\n")
    process = read_process(7, proc, cgroups)
    assert (process.unit, process.open_files) == ("gateway.service", 1024)
    assert process.memory_limit == 2**30
    assert process.variables == {"WATCHDOG_USEC": "30000000"}


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    process = read_process(7, tmp_path, tmp_path)
    assert (process.open_files, process.unit, process.variables) == (None, None, None)
    assert process.memory_limit == 0
