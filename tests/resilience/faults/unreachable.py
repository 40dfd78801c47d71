"""Addresses on loopback where there is no upstream to be had, and certificates nobody trusts.

Independent of HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.tcp_server import listening

_QUEUED = 0.1
"""Seconds after which a connection attempt that was not answered waits for room."""
_MOST_FILLERS = 16
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@asynccontextmanager
async def full_backlog() -> AsyncIterator[int]:
    """A port whose queue of connections is full and stays so: an attempt is neither accepted nor
    refused."""
    loop = asyncio.get_running_loop()
    fillers: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        try:
            for _ in range(_MOST_FILLERS):
                filler = socket.socket()
                fillers.append(filler)
                filler.setblocking(False)
                async with asyncio.timeout(_QUEUED):
                    await loop.sock_connect(filler, listener.getsockname())
            raise RuntimeError("the queue of connections never was full")
        except TimeoutError:
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()


@asynccontextmanager
async def talking_port(data: bytes = b"") -> AsyncIterator[int]:
    """A port that says the same to whoever says anything, or nothing at all: for a TLS client, a
    handshake that fails or one that stalls."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        await reader.read()

    async with listening(talk) as port:
        yield port


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """For a server on 127.0.0.1: a context whose certificate nobody has signed, and that
    certificate for a client that shall trust it all the same. Needs the command `openssl`."""
    certificate, key = folder / "upstream.pem", folder / "upstream.key"
    subject = ("-subj", "/CN=upstream", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(certificate), "-days", "2")
    subprocess.run(
        ("openssl", "req", "-x509", *_KEY, *subject, *files), check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


@contextmanager
def unknown_hosts() -> Iterator[str]:
    """A host name that is not found; no name server is asked. Other names are found as before."""
    name = "nowhere.invalid"
    find = socket.getaddrinfo

    def found(host: Any, *rest: Any, **more: Any) -> Any:
        if host == name:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return find(host, *rest, **more)

    with patch("socket.getaddrinfo", found):
        yield name
