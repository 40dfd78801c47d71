"""The image: built and run where a container engine works; else its steps, below a directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

import gateway
from tests.deploy.dockerfile import ScratchImage, instructions
from tests.support.paths import ROOT

TEXT = (ROOT / "Dockerfile").read_text()
STEPS = list(instructions(TEXT))
LAST_STAGE = dict(STEPS[max(i for i, (name, _) in enumerate(STEPS) if name == "FROM") :])
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICE: dict[str, Any] = COMPOSE["services"]["model-gateway"]
USER = 10001
COMMIT = "0123456789ab"
SECRET = "key-of-the-container-4711"
CONFIG = """\
channels:
  - name: main
    format: chat
    base_url: http://127.0.0.1:9/v1
    models: [beta-5.4]
    accounts: [{name: a1, key: "file:main"}]
"""


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert program is not None
    done = subprocess.run(
        [program, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_last_stage_is_unprivileged_and_starts_without_a_shell() -> None:
    assert LAST_STAGE["USER"] == f"{USER}:{USER}"
    assert LAST_STAGE["STOPSIGNAL"] == "SIGTERM"
    assert LAST_STAGE["VOLUME"] == "/var/lib/gateway"
    for name in ("ENTRYPOINT", "CMD"):
        assert LAST_STAGE[name].startswith("[")
    assert '"-I"' in LAST_STAGE["ENTRYPOINT"] and '"-I"' in LAST_STAGE["HEALTHCHECK"]
    assert [text for name, text in STEPS if name == "ADD"] == []


def test_everything_is_installed_by_its_hash() -> None:
    installs = [
        part
        for name, text in STEPS
        if name == "RUN"
        for part in text.split("&&")
        if " install " in part and "pip" in part
    ]
    assert len(installs) == 3
    assert [
        each for each in installs if not {"--require-hashes", "--no-index"} & {*each.split()}
    ] == []


def test_the_context_has_what_is_copied_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if line and line[0] not in "#!") == "*"
    offered = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for name, text in STEPS
        if name == "COPY" and "--from" not in text
        for source in text.split()[:-1]
    }
    assert {"requirements*.lock" if "requirements" in each else each for each in copied} == offered


def test_compose_gives_the_container_no_more_than_it_needs() -> None:
    """The keys are those of the Compose Specification."""
    assert_bounded(SERVICE)
    assert "profiles" not in SERVICE
    assert [*SERVICE["secrets"]] == ["main"]
    assert {*COMPOSE} == {"services", "secrets", "volumes", "networks"}
    assert "networks" not in SERVICE


def assert_bounded(service: Mapping[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert {"privileged", "user", "network_mode", "pid", "cap_add", "devices"} & set(
        service
    ) == set()
    assert [mount.rpartition(":")[2] for mount in service["volumes"]] == ["ro", "/var/lib/gateway"]
    assert service["mem_limit"] and service["pids_limit"]
    assert "environment" not in service  # secrets are files


def test_the_cluster_is_a_profile_of_two_replicas_with_a_state_each() -> None:
    services = COMPOSE["services"]
    cluster = {name: each for name, each in services.items() if each.get("profiles")}
    assert {*cluster} == {*services} - {"model-gateway"}
    assert {tuple(each["profiles"]) for each in cluster.values()} == {("cluster",)}
    replicas = [each for each in cluster.values() if each["image"] == SERVICE["image"]]
    assert len(replicas) == len({each["hostname"] for each in replicas}) == 2
    for replica in replicas:
        assert_bounded(replica)
        assert replica["ports"] == []
    assert len({replica["volumes"][1] for replica in replicas}) == 2
    assert {*COMPOSE["secrets"]} == {*replicas[0]["secrets"]}
    mounted = [
        mount.partition(":")[0] for each in cluster.values() for mount in each.get("volumes", [])
    ]
    assert {name for name in mounted if "/" not in name} | {"state"} == {*COMPOSE["volumes"]}
    addresses = [each["networks"]["cluster"]["ipv4_address"] for each in replicas]
    (network,) = COMPOSE["networks"]["cluster"]["ipam"]["config"]
    assert all(ip_address(each) in ip_network(network["subnet"]) for each in addresses)
    proxied = re.findall(r"server (\S+):8080 ", (ROOT / "config" / "nginx.conf").read_text())
    assert proxied == addresses * 2, "nginx does not start while a name cannot be resolved"
    assert all(each["security_opt"] and each["mem_limit"] for each in cluster.values())
    command = services["valkey"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def docker(*arguments: str | Path, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    command = ["docker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT)


@pytest.fixture(scope="session")
def engine() -> None:
    try:
        works = docker("info").returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if not works:
        pytest.skip("no container engine runs here")


def test_docker_accepts_the_compose_file() -> None:
    if shutil.which("docker") is None or docker("compose", "version").returncode != 0:
        pytest.skip("docker compose is not installed")
    done = docker("compose", "--profile", "cluster", "config", "--quiet")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("engine")
@pytest.mark.timeout(600)
def test_the_image_runs(tmp_path: Path) -> None:
    built = docker("build", "--quiet", "--build-arg", f"COMMIT={COMMIT}", ".", timeout=500)
    assert built.returncode == 0, built.stderr
    image = built.stdout.strip()
    tmp_path.chmod(0o755)
    (tmp_path / "channels.yaml").write_text(CONFIG)
    (tmp_path / "main").write_text(SECRET)
    mounts = ("-v", f"{tmp_path}:/etc/gateway:ro", "-v", f"{tmp_path}:/run/secrets:ro")
    limits = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp")
    started = docker("run", "--detach", "--rm", *limits, *mounts, image)
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    try:
        check = [*exec_form(LAST_STAGE["HEALTHCHECK"])]
        until(lambda: docker("exec", container, *check).returncode == 0, seconds=30)
        assert COMMIT in docker("exec", container, "gateway", "--version").stdout
        assert docker("exec", container, "gateway", "key", "mint", "--name", "a").returncode == 0
        assert docker("exec", container, "id", "-u").stdout.strip() == str(USER)
    finally:
        assert docker("stop", "--time", "20", container).returncode == 0


def exec_form(text: str) -> Sequence[str]:
    parts: Sequence[str] = yaml.safe_load(text[text.index("[") :])
    return parts


def until(condition: Any, *, seconds: float) -> float:
    """How long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def image() -> Iterator[ScratchImage]:
    """The Dockerfile's steps, executed below a directory that user 10001 can see into."""
    with tempfile.TemporaryDirectory(prefix="gateway-image-") as directory:
        root = Path(directory)
        root.chmod(0o755)
        python = str(python_of_everybody())
        scratch = ScratchImage(root, python, {"COMMIT": COMMIT, "PYTHON": "base"})
        scratch.build(TEXT)
        yield scratch


def python_of_everybody() -> Path:
    """A Python that the container's user can run too; version managers keep theirs at home."""
    for python in (Path(sys.base_prefix, "bin", "python3"), Path("/usr/bin/python3")):
        with_venv = [python, "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(with_venv, user=other_user(), timeout=30).returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip("needs a Python 3.11 with venv outside home directories")


def other_user() -> int | None:
    return USER if os.geteuid() == 0 else None


def files(root: Path) -> Mapping[str, str]:
    """Every file but those of the state, with the digest of its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and not path.is_relative_to(root / "var")
    }


@pytest.mark.slow("installs the package with its dependencies")
@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_steps_make_what_compose_runs(image: ScratchImage, record_property: Any) -> None:
    root = image.root
    etc, secrets = root / "etc" / "gateway", root / "run" / "secrets"
    secrets.mkdir(parents=True)
    (etc / "channels.yaml").write_text(CONFIG)
    (secrets / "main").write_text(SECRET)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    def local(*names: str) -> list[str]:
        command = image.command(*names)
        return [part.replace("8080", port).replace("0.0.0.0", "127.0.0.1") for part in command]

    def start(*command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env=image.env,
            cwd=image.workdir,
            user=other_user(),
            group=other_user(),
            extra_groups=[] if other_user() else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(*command: str) -> tuple[int, str]:
        process = start(*command)
        output, _ = process.communicate(timeout=30)
        return process.returncode, output

    before = files(root)
    daemon = start(*local("ENTRYPOINT", "CMD"))
    try:
        took = until(lambda: answers(int(port)), seconds=30)
        assert call(*local("HEALTHCHECK"))[0] == 0
        executable = str(root / "opt" / "model-gateway" / "bin" / "gateway")
        assert call(executable, "--version") == (0, f"gateway {gateway.__version__} ({COMMIT})\n")
        code, output = call(executable, "key", "mint", "--name", "first")
        assert (code, "sk-" in output) == (0, True), output
    finally:
        daemon.send_signal(signal.SIGTERM)
        output, _ = daemon.communicate(timeout=30)
    assert daemon.returncode == 0, output
    assert SECRET not in output
    assert call(*local("HEALTHCHECK"))[0] != 0
    assert files(root) == before
    state = root / "var" / "lib" / "gateway"
    assert (state / "gateway.db").stat().st_mode & 0o077 == 0

    assert list((root / "opt").rglob("*.pth")) == []  # they run at every start of Python
    size = sum(path.lstat().st_size for path in (root / "opt").rglob("*")) / 2**20
    record_property("MiB beside the base image", round(size))
    record_property("seconds until it answers", round(took, 2))
    assert size < 200


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_list_of_components_is_the_lock(image: ScratchImage, tmp_path: Path) -> None:
    """The program validates what it writes by the schema of CycloneDX."""
    pytest.importorskip("cyclonedx_py")
    python = image.root / "opt" / "model-gateway" / "bin" / "python"
    file = tmp_path / "components.json"
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--validate",
        "-o",
        file,
        python,
    ]
    subprocess.run(command, check=True, timeout=60)
    listed = {each["name"].lower() for each in orjson.loads(file.read_bytes())["components"]}
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    locked = {line.partition("==")[0] for line in lines if line[:1].isalnum() and ";" not in line}
    assert locked <= {re.sub(r"[-_.]+", "-", name) for name in listed}
    done = subprocess.run([ROOT / "scripts" / "licenses", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "MIT" in done.stdout and "model-gateway" in done.stdout


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
