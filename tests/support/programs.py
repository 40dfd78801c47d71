"""Programs of Debian that tests start: nginx, caddy, prometheus. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from typing import Final

import pytest

REQUIRE_VARIABLE: Final = "GATEWAY_REQUIRE_PROGRAMS"
"""The variable that makes a missing program a failure, where it is 1."""

_SEARCH_PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def find_program(name: str) -> str:
    """Its path; skips the test where it is not installed, unless it is required."""
    path = shutil.which(name, path=_SEARCH_PATH)
    if path is None and os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{name} is not installed")
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {_PACKAGES[name]})")
    return path


_PACKAGES: Final = {
    "nginx": "nginx-light",
    "caddy": "caddy",
    "curl": "curl",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "man": "man-db",
}
