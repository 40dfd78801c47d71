"""Other versions of Python on this machine, of those that the package's classifiers name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)$", re.MULTILINE)


@cache
def claimed_versions() -> list[str]:
    """Return those of the classifiers, such as `3.12`."""
    package = ConfigParser()
    package.read(ROOT / "setup.cfg")
    return _CLASSIFIER.findall(package["metadata"]["classifiers"])


@cache
def other_interpreters() -> dict[str, Path]:
    """Return a program that runs for each claimed version but this one, if the machine has it."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {version: _working(version) for version in claimed_versions() if version != own}
    return {version: path for version, path in found.items() if path is not None}


def _working(version: str) -> Path | None:
    return next((path for path in _candidates(version) if _runs(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    # Version managers put stubs on the PATH that only complain.
    for versions in (".pyenv/versions", ".local/share/uv/python"):
        yield from sorted((Path.home() / versions).glob(f"*/bin/python{version}"))


def _runs(path: Path, version: str) -> bool:
    command = (path, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == version
