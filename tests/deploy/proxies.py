"""nginx and Caddy as programs in the foreground, with the configuration of the documentation."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.nginx import NGINX
from tests.support.paths import ROOT
from tests.support.programs import find_program

START_TIMEOUT: Final = 15.0

_CADDY: Final = """
{{
    admin off
    auto_https off
    storage file_system {folder}/storage
}}
{site}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """`url` is what clients use; `trust` makes them trust its certificate."""

    url: str
    trust: ssl.SSLContext


def documented(language: str) -> str:
    """The configuration that the documentation shows."""
    page = (ROOT / "docs" / "install.md").read_text()
    (block,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return str(block)


def replace(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


def nginx_site(gateway: str, port: int, folder: Path) -> str:
    site = replace(documented("nginx"), "127.0.0.1:8080", gateway)
    site = replace(site, "listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    path = "/etc/letsencrypt/live/gateway.example"
    site = replace(site, f"{path}/fullchain.pem", f"{folder}/server.pem")
    return replace(site, f"{path}/privkey.pem", f"{folder}/server.key")


def caddy_site(gateway: str, port: int, folder: Path) -> str:
    site = replace(documented("caddy"), "127.0.0.1:8080", gateway)
    tls = f"tls {folder}/server.pem {folder}/server.key"
    return replace(site, "gateway.example {", f"https://127.0.0.1:{port} {{\n    {tls}")


def make_certificate(folder: Path) -> ssl.SSLContext:
    """`server.pem` and `server.key` for 127.0.0.1, and what trusts them."""
    names = ("-subj", "/CN=gateway", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(folder / "server.key"), "-out", str(folder / "server.pem"))
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    command = ("openssl", "req", "-x509", *key, *names, *files, "-days", "2")
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    return ssl.create_default_context(cafile=str(folder / "server.pem"))


@asynccontextmanager
async def run_proxy(
    kind: str, gateway: str, port: int, folder: Path, **changes: str
) -> AsyncIterator[Proxy]:
    """`gateway` is its host and port; `changes` are directives by name, with other values."""
    program = find_program(kind)
    trust = make_certificate(folder)
    make_site = nginx_site if kind == "nginx" else caddy_site
    site = make_site(gateway, port, folder)
    for name, text in changes.items():
        site, count = re.subn(rf"\b{name} [^;\n]*", f"{name} {text}", site)
        assert count == 1, name
    file = folder / f"{kind}.conf"
    template = NGINX if kind == "nginx" else _CADDY
    file.write_text(template.format(folder=folder, site=site))
    arguments = ["-c", str(file), "-p", str(folder), "-e", str(folder / "error.log")]
    if kind == "caddy":
        arguments = ["run", "--config", str(file), "--adapter", "caddyfile"]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [program, *arguments],
            cwd=folder,
            env={"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        await _wait_until_open(process, port, folder)
        yield Proxy(f"https://127.0.0.1:{port}", trust)
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


async def _wait_until_open(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            assert process.poll() is None, (folder / "output").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
