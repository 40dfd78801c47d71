"""The process log of `gateway serve`: requests, reloads, and a standard error that nobody reads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import orjson
import pytest

from gateway.store.sqlite.lock import DATABASE_NAME
from tests.resilience.chaos.process import GatewayProcess, create_key, write_config
from tests.support.forked_process import ForkedProcess, run_forked

pytestmark = pytest.mark.processes

SECRET = "canary-of-the-account"


def configure(folder: Path, **log: Any) -> Path:
    """A channel that nobody serves."""
    channel = {
        "name": "nobody",
        "format": "chat",
        "base_url": "http://127.0.0.1:9/v1",
        "models": {"beta-5.4": "up"},
        "accounts": [{"name": "a1", "key": SECRET}],
    }
    return write_config(folder, sections={"channels": [channel]}, log=log)


def post(address: str, key: str) -> int:
    body = orjson.dumps({"model": "beta-5.4", "messages": [{"role": "user", "content": "hi"}]})
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        with refusal:
            return refusal.code


def objects(text: str) -> list[Any]:
    return [orjson.loads(line) for line in text.splitlines()]


def requests(text: str) -> list[Any]:
    return [each for each in objects(text) if each["logger"] == "gateway.requests"]


def wait_for_requests(gateway: GatewayProcess, count: int) -> list[Any]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if len(found := requests(gateway.stderr)) >= count:
            return found
        time.sleep(0.02)
    raise AssertionError(gateway.stderr)


@contextmanager
def serving(folder: Path, **log: Any) -> Iterator[tuple[GatewayProcess, str]]:
    file = configure(folder, **log)
    (folder / "state").mkdir()
    key = asyncio.run(create_key(folder))
    with GatewayProcess(folder, "--config", file) as gateway:
        gateway.wait_for_output("serving on")
        yield gateway, key
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0


def address_of(gateway: GatewayProcess) -> str:
    return gateway.wait_for_output(r"serving on (http://[0-9.:]+)")[1]


def test_each_request_is_a_json_line(tmp_path: Path) -> None:
    with serving(tmp_path, format="json", requests=True) as (gateway, key):
        address = address_of(gateway)
        assert post(address, key) == 503
        assert post(address, "sk-wrong-canary") == 401
        failed, rejected = wait_for_requests(gateway, 2)
    told = gateway.stderr
    assert failed["level"] == "warning"
    assert failed["key"].startswith(key[:5])
    assert failed["token_id"]
    assert failed["channel"] == "nobody"
    assert failed["attempts"] >= 1
    assert failed["status"] == 503
    assert rejected["error_code"] == "invalid_api_key"
    assert "token_id" not in rejected
    assert key not in told
    assert "canary" not in told
    assert {each["level"] for each in objects(told)} == {"info", "warning"}


def test_a_reload_applies_to_the_log(tmp_path: Path) -> None:
    with serving(tmp_path, format="json") as (gateway, key):
        address = address_of(gateway)
        post(address, key)
        configure(tmp_path, format="json", requests=True)
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_output("is active")
        post(address, key)
        wait_for_requests(gateway, 1)
        (tmp_path / "channels.yaml").write_text("server: {log: {format: xml}}")
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_output("server.log.format")
        post(address, key)
        assert len(wait_for_requests(gateway, 2)) == 2
        configure(tmp_path, format="json", level="error", requests=True)
        gateway.signal(signal.SIGHUP)
        time.sleep(0.5)
        post(address, key)
    assert len(requests(gateway.stderr)) == 2


def test_a_failed_start_is_a_json_line_too(tmp_path: Path) -> None:
    file = configure(tmp_path, format="json")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / DATABASE_NAME).write_text("this is no database" * 100)
    with GatewayProcess(tmp_path, "--config", file) as gateway:
        assert gateway.wait() == 78
    (told,) = objects(gateway.stderr)
    assert told["level"] == "critical"
    assert DATABASE_NAME in told["message"]


def test_nobody_reads_standard_error(tmp_path: Path) -> None:
    """Thousands of lines into a pipe that is full: requests and the end are not delayed."""
    file = configure(tmp_path, format="json", requests=True)
    reading, writing = os.pipe()
    os.set_blocking(reading, True)
    process = ForkedProcess(
        *("gateway", "serve", "--config", str(file)),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        stderr=writing,
        stdout=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        told = b""
        while b"serving on" not in told:
            told += os.read(reading, 65536)
        message = orjson.loads(told.splitlines()[-1])["message"]
        address = message.removeprefix("serving on ")
        long_path = "/v1/" + "x" * 280
        longest = 0.0
        for _ in range(400):  # each line has about 700 bytes; the pipe holds 64 KiB
            started = time.monotonic()
            with pytest.raises(HTTPError) as refusal:
                urllib.request.urlopen(address + long_path, timeout=10)
            refusal.value.close()
            longest = max(longest, time.monotonic() - started)
        assert longest < 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        os.close(reading)


def test_a_failed_start_with_a_full_pipe(tmp_path: Path) -> None:
    file = configure(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / DATABASE_NAME).write_text("this is no database" * 100)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    command = ("gateway", "serve", "--config", str(file))
    try:
        done = run_forked(
            *command, cwd=tmp_path, env={"PATH": os.environ["PATH"]}, stderr=writing, timeout=30
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 78
