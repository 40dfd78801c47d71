"""Modes and owners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.doctor.files import check_files
from gateway.doctor.findings import Finding, State

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    for name in ("gateway.db", "lock"):
        (path / name).touch(mode=0o600)
    return path


def not_ok(findings: list[Finding]) -> dict[str, State]:
    return {Path(each.subject).name: each.state for each in findings if each.state is not State.OK}


def test_what_is_as_it_should_be_is_ok(tmp_path: Path, state_dir: Path) -> None:
    config, secret = tmp_path / "channels.yaml", tmp_path / "key"
    config.touch(mode=0o640)
    secret.touch(mode=0o600)
    findings = check_files(config, [secret, secret], state_dir)
    assert not_ok(findings) == {}
    assert len(findings) == 3


def test_modes(tmp_path: Path, state_dir: Path) -> None:
    config, secret = tmp_path / "channels.yaml", tmp_path / "key"
    for path in (config, secret):
        path.touch()
        path.chmod(0o666)
    (state_dir / "gateway.db").chmod(0o644)
    findings = check_files(config, [secret, tmp_path / "absent"], state_dir)
    assert not_ok(findings) == dict.fromkeys(
        ("channels.yaml", "key", "absent", "gateway.db"), State.PROBLEM
    )
    remedies = {each.remedy for each in findings}
    assert {f"chmod go-w {config}", f"chmod 600 {secret}"} <= remedies


def test_an_open_directory_is_a_problem(state_dir: Path) -> None:
    state_dir.chmod(0o755)
    assert not_ok(check_files(None, (), state_dir)) == {"state": State.PROBLEM}


def test_a_directory_that_does_not_exist_is_created_later(tmp_path: Path) -> None:
    (finding,) = check_files(None, (), tmp_path / "absent")
    assert finding.state is State.OK


@AS_ROOT
def test_owners(tmp_path: Path, state_dir: Path) -> None:
    config = tmp_path / "channels.yaml"
    config.touch(mode=0o640)
    os.chown(config, 1234, 0)
    os.chown(state_dir, 1234, 1234)
    os.chown(state_dir / "lock", 1234, 1234)
    findings = check_files(config, (), state_dir)
    assert not_ok(findings) == {
        "channels.yaml": State.WARNING,
        "state": State.WARNING,
        "gateway.db": State.PROBLEM,
    }
    assert any("sudo -u '#1234' gateway doctor" in (each.remedy or "") for each in findings)
