"""A rolling upgrade to a release with another schema, behind nginx as config/nginx.conf has it: no
request fails."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, run_fleet
from tests.support.fleet_ledger import find_faults, settled, value
from tests.support.fleet_load import Load, LoadProcess
from tests.support.next_release import VARIABLE
from tests.support.paths import ROOT
from tests.support.programs import find_program
from tests.support.server_process import end_process, free_port, wait_until

_HTTP = """
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}}
"""


@asynccontextmanager
async def nginx(fleet: Fleet) -> AsyncIterator[str]:
    """The address of the documented proxy before the fleet's two replicas."""
    program, port, folder = find_program("nginx"), free_port(), fleet.folder / "nginx"
    folder.mkdir()
    site = (ROOT / "config" / "nginx.conf").read_text()
    for number, replica in enumerate(fleet.replicas, 1):
        assert f"replica-{number}:8080" in site
        site = site.replace(f"replica-{number}:8080", f"127.0.0.1:{replica.port}")
    site = site.replace("listen 80;", f"listen 127.0.0.1:{port};")
    file = folder / "nginx.conf"
    file.write_text(_HTTP.format(folder=folder, site=site))
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
        wait_until(is_ready, process, "nginx")
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGTERM)


@pytest.mark.timeout(180)
async def test_a_rolling_upgrade_fails_no_request(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2) as fleet, nginx(fleet) as address:
        key = await fleet.mint("--budget", "1G", "--rpm", "1000000")
        before = await value(fleet.url, "SELECT value FROM settings WHERE name = 'schema_version'")
        await asyncio.sleep(1.5)
        short = LoadProcess(Load([address], [key], "short", 16, rate=80, seconds=40), tmp_path)
        streams = LoadProcess(
            Load([address], [key], "stream", 16, seconds=36, stream=True, model="beta-paced-chat"),
            tmp_path,
        )
        await asyncio.sleep(3)
        for replica in fleet.replicas:
            assert await replica.stop() == 0
            replica.module = "tests.support.next_release"
            replica.environment = {VARIABLE: "compatible"}
            await replica.start()
            await asyncio.sleep(3)
        of_short, of_streams = await short.answers(), await streams.answers()
        assert of_short.statuses().keys() == {200}, of_short.codes()
        assert of_streams.statuses().keys() == {200}, of_streams.codes()
        assert of_streams.cut() == of_short.cut() == []
        after = await value(fleet.url, "SELECT value FROM settings WHERE name = 'schema_version'")
        assert int(after) == int(before) + 1
        await settled(fleet.url)
        names = [answer.name for answer in of_short.admitted() + of_streams.admitted()]
        assert await find_faults(fleet.url, names) == []
