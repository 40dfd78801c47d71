"""The installer, run for real below a directory of its own; the machine itself stays untouched."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree as it is now: it may be edited while the tests run."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("config", "gateway", "scripts", "systemd"):
        shutil.copytree(ROOT / name, copy / name)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    dependencies = copy.with_name("dependencies")
    dependencies.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("pip", "model_gateway", "__editable__", "_distutils")):
            (dependencies / path.name).symlink_to(path)
    return copy


def install(tree: Path, destination: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the installer with the dependencies of the tests: installing them would cost time."""
    environment = os.environ | {
        "DESTDIR": str(destination),
        "PIP_NO_DEPS": "1",
        "PYTHONPATH": str(tree.with_name("dependencies")),
        "PYTHON": sys.executable,
    }
    return subprocess.run(
        [tree / "scripts" / "install.sh", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )


def picture(directory: Path) -> Mapping[str, str]:
    """Every file with its mode and content; compiled modules carry a time of their own."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.suffix == ".pyc" or path.is_symlink():
            continue
        # pip lists the temporary place that it installed from and hashes of what it compiled.
        if path.parent.suffix == ".dist-info" and path.name in {"RECORD", "direct_url.json"}:
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(directory))] = f"{path.stat().st_mode:o} {content}"
    return found


def test_dry_run_changes_nothing(tree: Path, tmp_path: Path) -> None:
    done = install(tree, tmp_path, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would run:" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_extras_are_those_of_the_environment(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"{tree}\n" in install(tree, tmp_path, "--dry-run").stdout
    monkeypatch.setenv("GATEWAY_EXTRAS", "cluster")
    assert f"{tree}\\[cluster\\]\n" in install(tree, tmp_path, "--dry-run").stdout


def test_unknown_option_is_refused(tree: Path, tmp_path: Path) -> None:
    done = install(tree, tmp_path, "--dryrun")
    assert done.returncode == 64
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("installs the package with its dependencies")
@pytest.mark.timeout(320)
def test_second_run_finds_everything_in_place(tree: Path, tmp_path: Path) -> None:
    first = install(tree, tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    etc = tmp_path / "etc"
    config = etc / "gateway" / "channels.yaml"
    assert config.stat().st_mode & 0o777 == 0o640
    assert (etc / "gateway" / "credentials").stat().st_mode & 0o777 == 0o700
    assert not (tree / "build").exists()
    for name in ("gateway.service", "gateway.socket", "gateway-backup.timer"):
        installed = etc / "systemd" / "system" / name
        assert installed.read_bytes() == (tree / "systemd" / name).read_bytes()
    link = tmp_path / "usr" / "local" / "bin" / "gateway"
    assert os.readlink(link) == "/opt/model-gateway/bin/gateway"

    share = tmp_path / "usr" / "local" / "share"
    assert ".SS gateway key mint " in (share / "man" / "man1" / "gateway.1").read_text()
    completion = share / "bash-completion" / "completions" / "gateway"
    assert "_GATEWAY_COMPLETE=bash_complete" in completion.read_text()

    home = tmp_path / "opt" / "model-gateway"
    shebang = (home / "bin" / "gateway").read_bytes().splitlines()[0]
    assert shebang == b"#!/opt/model-gateway/bin/python"
    found = subprocess.run(
        [home / "bin" / "python", "-I", "-c", "import gateway; print(gateway.__file__)"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert found.stdout.startswith(str(home)), found.stderr

    config.write_text("channels: []  # the operator's own\n")
    link.unlink()
    link.write_text("another program")
    before = picture(tmp_path)
    second = install(tree, tmp_path)
    assert "/usr/local/bin/gateway is another program and stays" in second.stdout
    assert second.returncode == 0, second.stdout + second.stderr
    assert picture(tmp_path) == before
