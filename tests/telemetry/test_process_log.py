"""The log of the process: format, levels, redaction, and what else ends in it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.config.load import parse_config
from gateway.config.schema import Config
from gateway.telemetry.process_log import ProcessLog, is_journal
from tests.support.paths import ROOT

OLD_KEY = "first-canary-of-an-account"
NEW_KEY = "second-canary-of-an-account"
HEADER = "canary of a header"


def config(key: str = OLD_KEY, **log: Any) -> Config:
    channel = {
        "name": "main",
        "format": "chat",
        "base_url": "http://127.0.0.1:9/v1",
        "models": {"beta-5.4": "up"},
        "headers": {"x-odd": HEADER},
        "accounts": [{"name": "a1", "key": key}],
    }
    text = {"channels": [channel], "server": {"log": log}}
    return parse_config(orjson.dumps(text).decode())


class Log:
    """A process log that writes to a file, and a logger that it handles."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
        self.process_log = ProcessLog(self._descriptor)
        self.logger = logging.Logger("gateway.tests")
        self.logger.addHandler(self.process_log)

    @property
    def text(self) -> str:
        self.process_log.flush()
        return self._file.read_text()

    @property
    def objects(self) -> list[Any]:
        return [orjson.loads(line) for line in self.text.splitlines()]

    def close(self) -> None:
        self.process_log.close()
        os.close(self._descriptor)
        logging.getLogger("gateway").setLevel(logging.NOTSET)
        logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "stderr")
    yield log
    log.close()


def test_text_and_json(log: Log) -> None:
    log.logger.warning("one\ntwo")
    log.process_log.flush()
    log.process_log.configure(config(format="json"))
    log.logger.error("three")
    first, second = log.text.splitlines()
    assert first == "WARNING gateway.tests: one\\ntwo"
    assert orjson.loads(second)["message"] == "three"


def test_the_level_applies_at_once(log: Log) -> None:
    log.process_log.configure(config(level="error"))
    log.logger.warning("not this")
    log.process_log.configure(config(level="debug"))
    log.logger.debug("this")
    assert log.text == "DEBUG gateway.tests: this\n"
    assert not logging.getLogger("aiosqlite").isEnabledFor(logging.DEBUG), "it shows whole rows"


def test_secrets_of_every_configuration_so_far(log: Log) -> None:
    log.process_log.configure(config(OLD_KEY, format="json"))
    log.process_log.configure(config(NEW_KEY, format="json"))
    for secret in (OLD_KEY, NEW_KEY, HEADER):
        try:
            raise ValueError(f"with {secret}") from KeyError(secret)
        except ValueError:
            log.logger.exception("from %s, cut %s", secret, OLD_KEY[:-4])
    assert "canary" not in log.text
    assert "[redacted]" in log.text
    assert [each["exception"] for each in log.objects] == ["ValueError"] * 3


@pytest.mark.parametrize(
    "text",
    [
        "sk-canary0123456789",
        "Bearer canary0123456789",
        "<CIMultiDictProxy('x-api-key': 'canary0123')>",
        "[(b'x-api-key', b'canary0123'), (b'a', b'b')]",
        "{'Authorization': 'Basic canary0123'}",
        "authorization: canary0123",
        "Cookie: gateway_session=canary0123; other=canary0123",
        "http://user:canary0123@proxy.test:3128/",
        "GET /v1/models?key=canary0123&x=1",
        "password=canary0123",
    ],
)
def test_credentials_by_their_form(log: Log, text: str) -> None:
    try:
        raise RuntimeError(text)
    except RuntimeError:
        log.logger.exception("a library says %s", text)
    assert "canary" not in log.text
    assert log.text.count("[redacted]") >= 2


def test_ordinary_words_stay(log: Log) -> None:
    text = "key mine (tok_1) is used: max_tokens: 5, http://127.0.0.1:80/a@b, tokens=7"
    log.logger.warning("%s", text)
    assert log.text == f"WARNING gateway.tests: {text}\n"


def test_a_value_that_fails_to_be_written(log: Log) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    log.logger.warning("%r", Odd())
    log.logger.warning("after it")
    assert log.text.count("\n") == 2


def test_standard_error_is_the_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "stderr"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    status = os.fstat(descriptor)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    assert is_journal(descriptor)
    assert not is_journal(0)
    log = Log(file)
    try:
        log.logger.error("a")
        log.logger.info("b")
        assert log.text == "<3>ERROR gateway.tests: a\n<6>INFO gateway.tests: b\n"
    finally:
        log.close()
        os.close(descriptor)


PROGRAM = """
import asyncio, gc, logging, sys, threading, warnings
from gateway.telemetry.process_log import log_to_stderr

KEY = "sk-canary0123456789"
with log_to_stderr():
    warnings.warn(f"a warning {KEY}")
    thread = threading.Thread(target=lambda: {}[KEY], name="odd")
    thread.start()
    thread.join()

    class Finalized:
        def __del__(self):
            raise ValueError(KEY)

    Finalized()
    gc.collect()

    async def main():
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    for number in range(3000):
        logging.info("line %d", number)
raise RuntimeError(KEY)
"""


def test_what_python_itself_writes(tmp_path: Path) -> None:
    """Warnings, errors of threads and finalizers, and the last one."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.returncode == 1
    assert "canary" not in result.stderr
    assert "WARNING py.warnings: " in result.stderr
    assert "an unexpected error ended the thread odd\n" in result.stderr
    assert "an error was ignored in <function Finalized.__del__" in result.stderr
    assert "ZeroDivisionError" in result.stderr
    assert result.stderr.count("INFO root: line ") == 3000, "all is written at the end"
    first = "CRITICAL gateway.telemetry.process_log: an unexpected error ends the process\n"
    assert first in result.stderr
    assert result.stderr.endswith("RuntimeError: [redacted]\n")
