"""The lock files: within the bounds of the project, with hashes, without an index."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

EXTRAS = ("aws", "azure", "cluster", "google", "images", "otel")
"""Those that the container has."""


class Locked(NamedTuple):
    requirement: Requirement
    hashes: tuple[str, ...]


def lock(name: str) -> dict[str, Locked]:
    """The pinned requirements of a file by their names."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    return dict(_parse(text.replace("\\\n", " ")))


def _parse(text: str) -> Iterator[tuple[str, Locked]]:
    for line in filter(str.strip, text.splitlines()):
        pinned, *hashes = re.split(r"\s+--hash=", line.strip())
        requirement = Requirement(pinned)
        yield canonicalize_name(requirement.name), Locked(requirement, tuple(hashes))


def required() -> list[tuple[str, Requirement]]:
    """What each lock has to have."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    texts = setup["options"]["install_requires"]
    texts += "".join(setup["options.extras_require"][extra] for extra in EXTRAS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [
        *(("requirements.lock", Requirement(line)) for line in texts.strip().splitlines()),
        *(("requirements-build.lock", Requirement(t)) for t in project["build-system"]["requires"]),
    ]


@pytest.mark.parametrize(
    ("name", "requirement"), required(), ids=lambda each: getattr(each, "name", None)
)
def test_a_requirement_is_locked_within_its_bounds(name: str, requirement: Requirement) -> None:
    """Where it fails, run `make lock`."""
    locked = lock(name)[canonicalize_name(requirement.name)].requirement
    (pin,) = locked.specifier
    assert pin.operator == "=="
    assert pin.version in requirement.specifier


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock"])
def test_every_file_has_a_hash_and_no_address(name: str) -> None:
    found = lock(name)
    assert found
    for each in found.values():
        assert each.hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in each.hashes)
    text = (ROOT / name).read_text()
    assert [word for word in ("://", "index", "find-links", " @ ") if word in text] == []
