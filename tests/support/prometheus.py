"""A Prometheus that scrapes one address and evaluates rules, many times per second.

Independent of what is measured.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientError, ClientSession

from tests.support.programs import find_program

START_SECONDS = 20.0
_INTERVAL = "250ms"


@dataclass(frozen=True, slots=True)
class Prometheus:
    http: ClientSession

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query; raises where it is invalid."""
        async with self.http.get("/api/v1/query", params={"query": expression}) as answer:
            body = await answer.json()
        assert body["status"] == "success", body
        return list(body["data"]["result"])

    async def firing(self) -> set[str]:
        """The names of alerts that fire."""
        async with self.http.get("/api/v1/alerts") as answer:
            alerts = (await answer.json())["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


def shortened(rules: str, seconds: int) -> str:
    """The rules with windows of so many seconds, and alerts that fire after half a second."""
    rules = re.sub(r"\[\d+[smh]\]", f"[{seconds}s]", rules)
    return re.sub(r"(?m)^(\s+for:) \d+[smh]$", r"\1 500ms", rules)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def run_prometheus(folder: Path, config: dict[str, Any]) -> AsyncIterator[Prometheus]:
    """`config` is its configuration file; intervals are made short."""
    program, port = find_program("prometheus"), free_port()
    intervals = {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL}
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config | {"global": intervals | {"scrape_timeout": _INTERVAL}}))
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        async with ClientSession(f"http://127.0.0.1:{port}") as http:
            await _wait_ready(http, process, folder / "prometheus.log")
            yield Prometheus(http)
    finally:
        if process.returncode is None:
            process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _wait_ready(http: ClientSession, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            assert process.returncode is None, log.read_text()
            with suppress(ClientError):
                async with http.get("/-/ready") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)
