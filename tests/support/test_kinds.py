from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kinds import SAMPLED_FILES, SLOW, rotation_of
from tests.support.paths import ROOT

MATRIX = """
import pytest

@pytest.mark.parametrize("number", range(18))
def test_many(number): pass

@pytest.mark.one_in(9)
@pytest.mark.parametrize("number", range(18))
def test_ninth(number): pass

@pytest.mark.one_in(2)
def test_second(): pass

@pytest.mark.parametrize("number", range(3))
def test_few(number): pass

@pytest.mark.processes
@pytest.mark.full
def test_full(): pass

@pytest.mark.slow("waits")
def test_slow(): pass

@pytest.mark.slow("waits")
@pytest.mark.parametrize("number", range(8))
def test_slow_matrix(number): pass

@pytest.mark.processes
def test_promise(): pass
"""


def collect(folder: Path, *options: str) -> list[str]:
    (folder / "test_matrix.py").write_text(MATRIX)
    (folder / "pytest.ini").touch()
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.support.kinds")
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode in {0, pytest.ExitCode.NO_TESTS_COLLECTED}, done.stdout + done.stderr
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow("runs pytest several times")
def test_four_quarters_are_the_whole_matrix(tmp_path: Path) -> None:
    quarters = [collect(tmp_path, "--change", f"--rotation={number}") for number in range(4)]
    cases = [test for quarter in quarters for test in quarter if "many" in test]
    assert sorted(cases) == sorted(f"test_many[{number}]" for number in range(18))
    slow = [test for quarter in quarters for test in quarter if "slow_matrix" in test]
    assert sorted(slow) == sorted(f"test_slow_matrix[{number}]" for number in range(8))
    for quarter in quarters:
        assert sum("many" in test for test in quarter) in {4, 5}
        assert {"test_few[0]", "test_few[1]", "test_few[2]", "test_promise"} <= set(quarter)
        assert "test_full" not in quarter
        assert sum("ninth" in test for test in quarter) == 2
    second = ["test_second" in quarter for quarter in quarters]
    assert second in (2 * [True, False], 2 * [False, True])


@pytest.mark.slow("runs pytest several times")
def test_a_slow_test_runs_for_a_part_of_the_changes(tmp_path: Path) -> None:
    parts = [collect(tmp_path, "--change", f"--rotation={number}") for number in range(SLOW)]
    assert ["test_slow" in part for part in parts].count(True) == 1


def test_the_quick_tests_have_no_slow_kind(tmp_path: Path) -> None:
    found = collect(tmp_path, "--quick")
    assert "test_many[17]" in found
    assert not {"test_full", "test_promise"} & set(found)


@pytest.mark.slow("collects all tests many times")
def test_samples_of_as_many_commits_are_all_quick_tests(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"test_{number}.py").write_text(f"def test_file_{number}(): pass")
    samples = [
        collect(tmp_path, "--quick", "--sample", f"--rotation={number}")
        for number in range(SAMPLED_FILES)
    ]
    assert sorted(test for sample in samples for test in sample) == sorted(
        collect(tmp_path, "--quick")
    )
    assert sum(bool(sample) for sample in samples) > 2


@pytest.mark.parametrize(("commit", "rotation"), [("", 0), ("b4", 0), ("a1f5", 61)])
def test_the_commit_decides_which_part_runs(commit: str, rotation: int) -> None:
    assert rotation_of(commit) == rotation
