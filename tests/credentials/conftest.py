"""No library of a platform reaches anything but loopback, whatever it looks for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_PLATFORMS = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_", "CLOUDSDK_")


@pytest.fixture(autouse=True)
def dialled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses beyond loopback that were to be connected to; each attempt is refused."""
    for name in [name for name in os.environ if name.startswith(_PLATFORMS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    dialled: list[str] = []
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def guarded(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else "127.0.0.1"
        if not (host.startswith("127.") or host in ("::1", "localhost")):
            dialled.append(host)
            raise ConnectionRefusedError(host)
        connect(self, address)

    def looked_up(host: Any, *args: Any, **options: Any) -> Any:
        if host not in ("127.0.0.1", "::1", "localhost", None):
            dialled.append(str(host))
            raise socket.gaierror(host)
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    yield dialled
    assert dialled == []
