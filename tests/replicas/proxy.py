"""nginx before replicas, as config/nginx.conf has it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.nginx import NGINX
from tests.support.paths import ROOT
from tests.support.programs import find_program
from tests.support.server_process import end_process, free_port, wait_until


@asynccontextmanager
async def nginx(folder: Path, ports: Sequence[int]) -> AsyncIterator[str]:
    """The address of the documented proxy before two replicas. `folder` is new."""
    program, port = find_program("nginx"), free_port()
    folder.mkdir()
    site = (ROOT / "config" / "nginx.conf").read_text()
    for number, replica_port in enumerate(ports, 1):
        assert f"10.89.77.1{number}:8080" in site
        site = site.replace(f"10.89.77.1{number}:8080", f"127.0.0.1:{replica_port}")
    site = site.replace("listen 80;", f"listen 127.0.0.1:{port};")
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, site=site))
    command = [program, "-c", str(file), "-p", str(folder), "-e", str(folder / "error.log")]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
                return True
        except OSError:
            return False

    try:
        await asyncio.to_thread(wait_until, is_ready, process, "nginx")
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGTERM)
