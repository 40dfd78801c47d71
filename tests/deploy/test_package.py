"""The source distribution and the wheel: what is in them, and that the wheel runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from email import message_from_string
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import gateway
from tests.support.paths import ROOT

COMMIT = "0123456789ab"
URL = "https://git.example/model-gateway"
NAME = f"model_gateway-{gateway.__version__}"


def run(*command: str | Path, timeout: float = 60, **environment: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def source_files() -> Sequence[str]:
    """What git has or would add."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    listed = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source as it is now, without its history."""
    copy = tmp_path_factory.mktemp("tree")
    for name in source_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def build(tree: Path, *arguments: str | Path, commit: str = COMMIT) -> None:
    command = (sys.executable, "-m", "build", *arguments, tree)
    run(*command, timeout=120, GATEWAY_COMMIT=commit, PROJECT_URL=URL)


@pytest.fixture(scope="module")
def dist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    build(tree, "--outdir", directory)
    return directory


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"{NAME}-py3-none-any.whl"


@pytest.mark.slow("builds the distribution")
@pytest.mark.full
@pytest.mark.timeout(180)
def test_the_source_distribution_is_complete(tree: Path, dist: Path) -> None:
    with tarfile.open(dist / f"{NAME}.tar.gz") as archive:
        members = {member.name.removeprefix(f"{NAME}/") for member in archive if member.isfile()}
        assert {member.uname + member.gname for member in archive} == {""}
    generated = {name for name in members if name == "PKG-INFO" or ".egg-info/" in name}
    expected = {name for name in source_files() if not name.startswith(".git")}
    assert members - generated == expected | {"gateway/commit.txt"}


@pytest.mark.slow("builds the distribution")
@pytest.mark.timeout(180)
def test_the_wheel_has_the_package_and_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = message_from_string(archive.read(f"{NAME}.dist-info/METADATA").decode())
    packaged = {name for name in source_files() if name.startswith("gateway/")}
    assert packaged <= names
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert {name.partition("/")[0] for name in names} == {"gateway", f"{NAME}.dist-info"}
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("Project-URL") == [f"Source, {URL}", f"Issues, {URL}/issues"]


@pytest.mark.slow("builds the distribution")
@pytest.mark.timeout(180)
def test_the_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps")
    run(*pip, "--target", target, wheel)
    config = tmp_path / "channels.yaml"
    config.write_text("channels: []\n")

    def call(*arguments: str) -> str:
        return run(target / "bin" / "gateway", *arguments, PYTHONPATH=str(target))

    assert call("--version") == f"gateway {gateway.__version__} ({COMMIT})\n"
    assert "ok (channels: 0" in call("check", "--config", str(config))


@pytest.mark.slow("builds the distribution")
@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_same_source_gives_the_same_archives(dist: Path, tree: Path, tmp_path: Path) -> None:
    for file in tree.rglob("*.py"):
        os.utime(file, (2e9, 2e9))
    build(tree, "--outdir", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in dist.iterdir()
    }


def commit_of(directory: Path) -> str | None:
    """What a copy of the package in `directory` says."""
    copy = directory / "gateway" / "__init__.py"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / "gateway" / "__init__.py", copy)
    spec = spec_from_file_location("gateway_copy", copy)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: str | None = module.commit()
    return found


def test_the_commit_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / ".git").mkdir()  # not a repository
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    assert commit_of(tmp_path) is None
    (tmp_path / "gateway" / "commit.txt").write_text(f"{COMMIT}\n")
    assert commit_of(tmp_path) == COMMIT


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    git = ("git", "-C", tmp_path, "-c", "user.name=Tests", "-c", "user.email=tests@example.org")
    assert commit_of(tmp_path) is None
    tracked = tmp_path / "setup.cfg"
    tracked.write_text("first")
    run(*git, "init", "--quiet")
    run(*git, "add", tracked.name)  # the package is copied again, and compiled
    run(*git, "commit", "--quiet", "--message", "First")
    run(*git, "tag", "v9")
    (tmp_path / "untracked").touch()
    commit = run(*git, "rev-parse", "--short=12", "HEAD").strip()
    assert commit_of(tmp_path) == commit
    tracked.write_text("changed")
    assert commit_of(tmp_path) == f"{commit}-dirty"
