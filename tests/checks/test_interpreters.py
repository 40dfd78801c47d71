from __future__ import annotations

import subprocess
import sys

from tests.checks.interpreters import claimed_versions, other_interpreters


def test_the_versions_are_those_of_the_classifiers() -> None:
    assert {"3.11", "3.12", "3.13"} <= set(claimed_versions())


def test_found_interpreters_run_and_are_other_versions() -> None:
    for version, python in other_interpreters().items():
        assert not sys.version.startswith(f"{version}.")
        assert f"Python {version}." in subprocess.check_output([python, "--version"], text=True)
