"""The address of the socket unit and that of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.check import socket_warning
from gateway.config.schema import Server
from tests.support.paths import ROOT


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """With the project's unit, enabled."""
    unit = tmp_path / "gateway.socket"
    unit.write_text((ROOT / "systemd" / "gateway.socket").read_text())
    (tmp_path / "sockets.target.wants").mkdir()
    (tmp_path / "sockets.target.wants" / unit.name).symlink_to(unit)
    return tmp_path


def test_the_same_address(units: Path) -> None:
    assert socket_warning(Server(), units) is None


def test_another_address(units: Path) -> None:
    warning = socket_warning(Server(port=9000), units)
    assert warning is not None
    assert "(127.0.0.1:9000) do not apply" in warning
    assert "listens on 127.0.0.1:8080." in warning


def test_a_drop_in_replaces_the_address(units: Path) -> None:
    drop_in = units / "gateway.socket.d" / "override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Socket]\nListenStream=\nListenStream=[::1]:9000\n")
    assert socket_warning(Server(host="::1", port=9000), units) is None
    assert "listens on [::1]:9000." in str(socket_warning(Server(), units))


def test_a_unit_that_is_not_enabled(units: Path) -> None:
    (units / "sockets.target.wants" / "gateway.socket").unlink()
    assert socket_warning(Server(port=9000), units) is None
    assert socket_warning(Server(port=9000), units / "none") is None
