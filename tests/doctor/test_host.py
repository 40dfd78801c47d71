"""Clock, limits of the process, versions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.config.schema import Config, Server
from gateway.doctor.findings import Area, Finding, State
from gateway.doctor.host import (
    _check_sqlite,
    check_clock,
    check_process,
    check_versions,
    hanging_process,
)
from gateway.doctor.process import Process
from gateway.runtime import unix_microseconds

MIB = 2**20


def states(findings: list[Finding]) -> dict[str, State]:
    return {each.subject: each.state for each in findings}


def process(**changes: object) -> Process:
    fields: dict[str, object] = {
        "pid": 1,
        "open_files": 65536,
        "memory_limit": 0,
        "unit": None,
        "variables": {},
    }
    return Process(**(fields | changes))  # type: ignore[arg-type]


def server(**options: object) -> Server:
    return Config().server.model_copy(update=options)


def test_the_clock() -> None:
    assert states(check_clock())["time"] is State.OK
    assert states(check_clock(now_us=lambda: 1_000_000))["time"] is State.PROBLEM
    jumps = iter([unix_microseconds(), *[unix_microseconds() + 5_000_000] * 3])
    assert states(check_clock(now_us=lambda: next(jumps)))["time"] is State.WARNING


@pytest.mark.parametrize(
    ("changes", "options", "subject", "state"),
    [
        ({}, {}, "open files", State.OK),
        ({"open_files": 1024}, {}, "open files", State.WARNING),
        ({"open_files": 1024}, {"max_connections": 1000}, "open files", State.PROBLEM),
        ({"open_files": None}, {}, "open files", State.WARNING),
        ({}, {}, "memory", State.OK),
        ({"memory_limit": 1536 * MIB}, {}, "memory", State.OK),
        ({"memory_limit": 512 * MIB}, {"max_bodies": 400 * MIB}, "memory", State.PROBLEM),
        ({}, {}, "systemd", State.OK),
        ({"unit": "gateway.service"}, {}, "systemd", State.WARNING),
        ({"unit": "gateway.service", "variables": None}, {}, "systemd", State.OK),
        (
            {"unit": "gateway.service", "variables": {"NOTIFY_SOCKET": "/run/x"}},
            {},
            "systemd",
            State.WARNING,
        ),
        (
            {
                "unit": "gateway.service",
                "variables": {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "30000000"},
            },
            {},
            "systemd",
            State.OK,
        ),
    ],
)
def test_limits_and_service(
    changes: dict[str, object], options: dict[str, object], subject: str, state: State
) -> None:
    assert states(check_process(process(**changes), server(**options)))[subject] is state


def test_without_a_gateway_nothing_is_said_about_its_process() -> None:
    assert states(check_process(None, server())) == {"gateway": State.WARNING}


def test_a_process_that_hangs_is_named() -> None:
    (finding,) = hanging_process(Path("/var/lib/gateway"), 77)
    assert finding.state is State.PROBLEM
    assert finding.text == "process 77 holds /var/lib/gateway and does not answer"
    (finding,) = hanging_process(Path("/var/lib/gateway"), None)
    assert finding.text.startswith("another process holds")


def test_versions() -> None:
    found = {each.subject: each for each in check_versions(None)}
    assert found["gateway"].state is State.OK
    assert sys.executable in found["python"].text
    assert states(check_versions("0.0.1"))["gateway"] is State.WARNING


@pytest.mark.parametrize(
    ("version", "state", "has_note"),
    [
        ((3, 30, 0), State.PROBLEM, False),
        ((3, 40, 1), State.OK, True),
        ((3, 51, 3), State.OK, False),
    ],
)
def test_versions_of_sqlite(version: tuple[int, ...], state: State, has_note: bool) -> None:
    area = Area("versions")
    _check_sqlite(area, version)
    (finding,) = area.findings
    assert finding.state is state
    assert ("one writer" in finding.text) is has_note
