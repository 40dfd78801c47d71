"""Certificates made for a test by the openssl command. Independent of who is to trust them."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Authority:
    """One that signs: `certificate` is the file that makes a client trust it."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "authority.pem"

    @property
    def key(self) -> Path:
        return self.folder / "authority.key"

    @cache  # noqa: B019  # as long as the tests run
    def server(self, names: str = "DNS:localhost,IP:127.0.0.1", days: int = 2) -> ssl.SSLContext:
        """A server of these names; with negative `days` its certificate has expired."""
        stem = self.folder / f"{abs(hash((names, days)))}"
        request, key, certificate = (stem.with_suffix(end) for end in (".csr", ".key", ".pem"))
        names_of = ("-subj", "/CN=server", "-addext", f"subjectAltName={names}")
        _openssl("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, *names_of)
        signed_by = ("-CA", self.certificate, "-CAkey", self.key, "-copy_extensions", "copy")
        serial = ("-set_serial", "7", "-days", str(days))
        _openssl("x509", "-req", "-in", request, "-out", certificate, *signed_by, *serial)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context


def make_authority(folder: Path) -> Authority:
    authority = Authority(folder)
    extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign")
    added = [part for extension in extensions for part in ("-addext", extension)]
    files = ("-keyout", authority.key, "-out", authority.certificate)
    _openssl("req", "-x509", *_NEW_KEY, *files, "-subj", "/CN=authority", "-days", "2", *added)
    return authority


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=20)
