"""The listening address and `public_url`. Nothing but the gateway's own address is connected to."""

from __future__ import annotations

import http.client
import ipaddress
import socket
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from gateway.config.schema import Server
from gateway.doctor.findings import Area, Finding

_TIMEOUT: Final = 3.0
ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
"""Addresses of all interfaces, and how this machine reaches them."""
_MAX_ANSWER: Final = 64 * 1024


def check_network(server: Server, *, running: bool, hangs: bool = False) -> list[Finding]:
    """`running`: whether a gateway answers on the admin socket; of one that hangs the port says
    nothing."""
    area = Area("network")
    if not hangs and check_listener(area, server, running=running):
        _check_ready(area, server)
    _check_exposure(area, server)
    _check_public_url(area, server)
    return area.findings


def address_of(server: Server) -> str:
    """The URL at which this machine reaches the gateway."""
    host = ANY.get(server.host, server.host)
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def check_listener(area: Area, server: Server, *, running: bool) -> bool:
    """Whether a gateway answers at the address."""
    place = f"{server.host}:{server.port}"
    if server.port == 0:
        area.warn(place, "any free port: clients do not know it", "set server.port")
        return False
    answer = _get(server, "/healthz")
    if answer is not None and answer.get("status") == "ok":
        if not running:
            remedy = (
                "if that is another gateway, set another server.port; else give its --state-dir"
            )
            area.warn(place, "a gateway answers, but not on this state directory", remedy)
        else:
            area.ok(place, "the gateway answers")
        return True
    error = _bind_error(server)
    if error is None and running:
        remedy = "gateway serve --port chooses it at the start: compare with the journal"
        area.warn(place, "a gateway runs, but does not listen here", remedy)
    elif error is None:
        area.ok(place, "free: no gateway runs")
    else:
        area.problem(place, f"cannot be used: {error}", "set another server.port, or stop its user")
    return False


def _get(server: Server, path: str) -> dict[str, Any] | None:
    url = urlsplit(address_of(server))
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=_TIMEOUT)
    try:
        connection.request("GET", path)
        answer = orjson.loads(connection.getresponse().read(_MAX_ANSWER))
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
        return None
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else None


def _bind_error(server: Server) -> str | None:
    try:
        family, kind, *_, address = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _check_ready(area: Area, server: Server) -> None:
    ready = _get(server, "/readyz") or {}
    error = (ready.get("config") or {}).get("error")
    if ready.get("status") != "ready":
        reason = ready.get("reason", "no answer of /readyz")
        area.problem("readiness", str(reason), "journalctl -u gateway -n 50")
    elif error:
        area.problem("readiness", f"the file has become invalid: {error}", "gateway check")
    else:
        area.ok("readiness", "requests are served")


def _check_exposure(area: Area, server: Server) -> None:
    if is_loopback(server.host):
        area.ok("exposure", "loopback: only this machine reaches it")
    elif (server.public_url or "").startswith("https://"):
        area.warn(
            "exposure",
            f"{server.host} is reached without TLS, beside {server.public_url}",
            "set server.host to 127.0.0.1 if the proxy runs on this machine",
        )
    else:
        area.warn(
            "exposure",
            f"{server.host} is on the network without TLS: keys can be read on the way",
            "put nginx or Caddy in front (README), and set server.host to 127.0.0.1",
        )


def _check_public_url(area: Area, server: Server) -> None:
    if server.public_url is None:
        if not is_loopback(server.host):
            area.ok("public_url", "not set")
        return
    url = urlsplit(server.public_url)
    subject = f"public_url {server.public_url}"
    if url.path.rstrip("/").endswith(("/v1", "/messages", "/completions", "/responses")):
        area.problem(subject, f"ends in {url.path}", f"leave {url.path} out: clients append it")
    elif is_loopback(url.hostname or "") and not is_loopback(server.host):
        area.warn(subject, "is reached on this machine only", "set it to what clients use")
    elif url.scheme == "http" and not is_loopback(url.hostname or ""):
        area.warn(subject, "is not encrypted: keys can be read on the way", "use https://")
    elif not server.trusted_proxies and is_loopback(server.host):
        area.warn(
            subject,
            "a proxy is in front, but none is trusted: the log has its address for every client",
            "server: {trusted_proxies: [127.0.0.1/32]}",
        )
    else:
        area.ok(subject, "plausible")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
