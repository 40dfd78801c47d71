"""Fixtures: a command runner, and an admin API in a thread."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.cli.cli_runner import AdminGateway, CommandRunner, admin_gateway


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    monkeypatch.chdir(tmp_path)
    for name in ("GATEWAY_CONFIG", "GATEWAY_STATE_DIR", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    state_dir = tmp_path / "state"
    return CommandRunner(state_dir, {"GATEWAY_STATE_DIR": str(state_dir)})


@pytest.fixture
def gateway(shell: CommandRunner) -> Iterator[AdminGateway]:
    with admin_gateway(shell.state_dir) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def log_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore what a `gateway serve` in this process sets for its own: hooks, handlers, levels."""
    for module, hook in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(module, hook, getattr(module, hook))
    loggers = [logging.getLogger(name) for name in ("", "gateway")]
    handlers, levels = loggers[0].handlers[:], [each.level for each in loggers]
    yield
    logging.captureWarnings(False)
    loggers[0].handlers[:] = handlers
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


@pytest.fixture
def refused_start(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """The exit code and standard error of a `gateway serve` in this process that does not start."""

    def start(*arguments: str | Path) -> tuple[int, str]:
        capfd.readouterr()
        result = CliRunner().invoke(main, ["serve", *map(str, arguments)])
        return result.exit_code, result.stderr + capfd.readouterr().err

    return start
