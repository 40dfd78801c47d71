"""The systemd unit: hardened as promised, and in step with what scripts/install.sh installs.

It reads the files as text; nothing here may need a running systemd.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gateway.config.load import parse_config
from gateway.server.http.listener import INHERITED_BACKLOG

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd" / "gateway.service"

REQUIRED = {
    "Type": ["notify"],
    "NotifyAccess": ["main"],
    "User": ["gateway"],
    "WatchdogSec": ["30"],
    "Restart": ["on-failure"],
    "RestartPreventExitStatus": ["78"],
    "TimeoutStopSec": ["60"],
    "KillMode": ["mixed"],
    "LimitNOFILE": ["65536"],
    "LimitCORE": ["0"],
    "TasksMax": ["256"],
    "UMask": ["0077"],
    "StateDirectory": ["gateway"],
    "StateDirectoryMode": ["0700"],
    "NoNewPrivileges": ["yes"],
    "CapabilityBoundingSet": [""],
    "ProtectSystem": ["strict"],
    "ProtectHome": ["yes"],
    "ProtectClock": ["yes"],
    "ProtectHostname": ["yes"],
    "ProtectKernelTunables": ["yes"],
    "ProtectKernelModules": ["yes"],
    "ProtectKernelLogs": ["yes"],
    "ProtectControlGroups": ["yes"],
    "ProtectProc": ["invisible"],
    "ProcSubset": ["pid"],
    "PrivateTmp": ["yes"],
    "PrivateDevices": ["yes"],
    "PrivateUsers": ["yes"],
    "DevicePolicy": ["closed"],
    "RestrictAddressFamilies": ["AF_INET AF_INET6 AF_UNIX"],
    "RestrictNamespaces": ["yes"],
    "RestrictRealtime": ["yes"],
    "RestrictSUIDSGID": ["yes"],
    "LockPersonality": ["yes"],
    "MemoryDenyWriteExecute": ["yes"],
    "RemoveIPC": ["yes"],
    "SystemCallArchitectures": ["native"],
    "SystemCallFilter": ["@system-service", "~@privileged @resources"],
    "IPAddressDeny": ["169.254.169.254/32"],
    "LoadCredential": ["credential:/etc/gateway/credentials"],
}


def settings(text: str) -> Mapping[str, Sequence[str]]:
    """Every `Name=value` line, in order; a name may come several times."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        if line and line[0] not in "#;[":
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


@pytest.mark.parametrize(("name", "values"), REQUIRED.items(), ids=REQUIRED)
def test_setting(name: str, values: list[str]) -> None:
    assert settings(UNIT.read_text())[name] == values


def test_it_is_started_again_however_long_a_server_is_away() -> None:
    """`Restart=` alone never reaches the limit of starts."""
    unit = settings(UNIT.read_text())
    burst, interval = (int(unit[f"StartLimit{each}"][0]) for each in ("Burst", "IntervalSec"))
    assert burst * int(unit["RestartSec"][0]) >= interval


def test_memory_is_bounded() -> None:
    unit = settings(UNIT.read_text())
    assert unit["MemoryHigh"] and unit["MemoryMax"]


def test_unit_and_installer_name_the_same_places() -> None:
    unit = settings(UNIT.read_text())
    installer = (ROOT / "scripts" / "install.sh").read_text()
    python, *_, config = unit["ExecStart"][0].split()
    assert f"home=$dest{python.removesuffix('/bin/python')}\n" in installer
    assert f"etc=$dest{Path(config).parent}\n" in installer
    assert f'"$etc/{Path(config).name}"' in installer
    assert '"$etc/credentials"' in installer


def test_the_backup_is_of_the_service_s_own_state() -> None:
    unit, backup = (
        settings((UNIT.parent / name).read_text())
        for name in ("gateway.service", "gateway-backup.service")
    )
    for name in ("User", "StateDirectory", "UMask"):
        assert backup[name] == unit[name]
    python, *_, state_dir = backup["ExecStart"][0].split()
    assert python == unit["ExecStart"][0].split()[0]
    assert state_dir == f"/var/lib/{unit['StateDirectory'][0]}"


def test_a_replica_differs_from_the_service_in_its_places_alone() -> None:
    of_service, of_replica = (
        {
            name: values
            for name, values in settings(path.read_text()).items()
            if name != "Description"
        }
        for path in (UNIT, UNIT.parent / "gateway@.service")
    )
    state = "/var/lib/gateway-%i"
    (serve,), (reload,) = of_service["ExecStart"], of_service["ExecReload"]
    assert of_replica == of_service | {
        "ExecStart": [f"{serve} --state-dir {state} --port %i"],
        "ExecReload": [f"{reload} --state-dir {state}"],
        "SyslogIdentifier": ["gateway-%i"],
        "StateDirectory": ["gateway-%i"],
        "Sockets": ["gateway-replicas.socket"],
    }


def test_the_socket_of_all_replicas_differs_in_the_service_that_it_starts() -> None:
    of_one, of_all = (
        settings((UNIT.parent / name).read_text())
        for name in ("gateway.socket", "gateway-replicas.socket")
    )
    names = {"Description": of_all["Description"], "Service": ["gateway@8081.service"]}
    assert of_all == {**of_one, **names}


def test_no_secret_in_what_is_installed() -> None:
    for name in ("channels.yaml", "gateway.env.example"):
        for line in (ROOT / "systemd" / name).read_text().splitlines():
            if "key: " in line or "_KEY" in line:
                assert line.startswith("#"), line
            assert "sk-" not in line


def test_first_configuration_is_valid_with_and_without_its_examples() -> None:
    text = (ROOT / "systemd" / "channels.yaml").read_text()
    assert parse_config(text).channels == ()
    filled = text.replace("channels: []", "channels:").replace("\n#  ", "\n  ")
    assert len(parse_config(filled).channels) == 2


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


UNITS = sorted(path.name for path in UNIT.parent.glob("gateway*.*") if path.suffix != ".example")


def test_every_unit_is_installed() -> None:
    installer = (ROOT / "scripts" / "install.sh").read_text()
    installed = next(line for line in installer.splitlines() if "for unit in" in line)
    assert sorted(installed.split("for unit in ")[1].removesuffix("; do").split()) == UNITS


def test_the_socket_has_the_address_of_the_first_configuration() -> None:
    server = parse_config((ROOT / "systemd" / "channels.yaml").read_text()).server
    socket = settings((ROOT / "systemd" / "gateway.socket").read_text())
    assert socket["ListenStream"] == [f"{server.host}:{server.port}"]
    assert socket["Backlog"] == [str(INHERITED_BACKLOG)]


@needs_systemd
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    copies = [tmp_path / name for name in UNITS]
    for copy in copies:
        text = (UNIT.parent / copy.name).read_text()
        copy.write_text(text.replace("/opt/model-gateway/bin/python", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", *copies], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_exposure_is_at_most_two(name: str) -> None:
    unit = UNIT.parent / name
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout + done.stderr
