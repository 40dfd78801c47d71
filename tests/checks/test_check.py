from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.checks import steps
from tests.checks.check import MOST_REPEATED, Check
from tests.checks.steps import Step


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports of the check that runs this test are not overwritten."""
    monkeypatch.setattr(steps, "REPORTS", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def pytest_step(folder: Path, text: str) -> Step:
    (folder / "test_some.py").write_text(text)
    (folder / "pytest.ini").touch()
    cache = f"cache_dir={Step('some', ()).cache}"
    command = (sys.executable, "-m", "pytest", "-q", "-o", cache, "--rootdir", str(folder))
    return Step("some", (*command, "-c", f"{folder}/pytest.ini", str(folder)), tests=True)


async def test_a_test_that_fails_beside_others_is_repeated_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passes_twice = f"""
def test_flaky():
    from pathlib import Path
    ran = Path({str(tmp_path / "ran")!r})
    ran.open("a").write("x")
    assert len(ran.read_text()) > 1
"""
    check = Check()
    await check.run_stage([[pytest_step(tmp_path, passes_twice)], [Step("other", ("true",))]])
    assert not check.passed
    await check.repeat_failed()
    assert check.passed
    assert [name.rpartition("::")[2] for name in check.repeated] == ["test_flaky"]
    printed = capsys.readouterr().out
    assert "1 failed" in printed
    assert "1 passed" in printed


async def test_a_test_that_fails_again_fails_the_check(tmp_path: Path) -> None:
    check = Check()
    await check.run_step(pytest_step(tmp_path, "def test_broken(): assert False"))
    await check.repeat_failed()
    assert not check.passed


async def test_many_failed_tests_are_no_fault_of_a_busy_machine(tmp_path: Path) -> None:
    broken = "".join(f"def test_{number}(): assert False\n" for number in range(MOST_REPEATED + 1))
    check = Check()
    await check.run_step(pytest_step(tmp_path, broken))
    await check.repeat_failed()
    assert not check.passed
    assert check.repeated == []


async def test_a_step_that_is_no_test_is_not_repeated(tmp_path: Path) -> None:
    check = Check()
    await check.run_stage([[Step("lint", ("false",)), Step("types", ("true",))]])
    await check.repeat_failed()
    assert not check.passed
    assert {step.name: code for step, code in check.codes.items()} == {"lint": 1, "types": 0}
