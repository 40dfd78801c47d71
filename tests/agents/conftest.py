"""The real agents, as npm installs them, each in a network that has nothing but loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.paths import ROOT

FOLDER_VARIABLE: Final = "GATEWAY_AGENTS"
"""The variable with the folder in which npm has installed the agents."""
_PACKAGES: Final = {"codex": "@openai/codex", "claude": "@anthropic-ai/claude-code"}
_START_LOOPBACK: Final = 'ip link set lo up && exec "$@"'


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder with the agents; skips where one is missing."""
    folder = Path(os.environ.get(FOLDER_VARIABLE, ROOT / "var" / "agents")).absolute()
    programs = folder / "node_modules" / ".bin"
    if not all((programs / program).exists() for program in _PACKAGES):
        install = f"npm install --prefix {folder} {' '.join(_PACKAGES.values())}"
        pytest.skip(f"the agents are not installed ({FOLDER_VARIABLE} names the folder): {install}")
    return folder


@pytest.fixture(scope="session")
def isolated() -> list[str]:
    """The beginning of a command that gives it a network with nothing but loopback; skips where
    the system has no such networks."""
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    command = ["unshare", "--net", *user, "sh", "-c", _START_LOOPBACK, "sh"]
    missing = [program for program in ("unshare", "ip") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed (Debian: apt-get install util-linux iproute2): {missing}")
    if subprocess.run([*command, "true"], capture_output=True, timeout=10).returncode:
        pytest.skip("agents run only in a network of their own, which needs network namespaces")
    return command
