"""Without a database server nothing of this package is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

_PROGRAM = """
import asyncio, sys
from pathlib import Path
from gateway.config.load import parse_config
from gateway.daemon import run_daemon

async def main():
    config = parse_config("{state_dir: %s, server: {port: 0}, channels: []}" % sys.argv[1])
    async with run_daemon(config) as daemon:
        assert not daemon.runtime.fleet.is_replica
        assert daemon.runtime.fleet.is_leader

asyncio.run(main())
loaded = ("asyncpg", "valkey", "libvalkey", "gateway.fleet")
print(sorted(name for name in sys.modules if name.startswith(loaded)))
"""


@pytest.mark.slow("starts the daemon")
@pytest.mark.processes
def test_one_process_with_a_file_loads_none_of_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "state")],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()[-500:]) == (0, "")
    assert done.stdout.decode().strip() == "[]"
