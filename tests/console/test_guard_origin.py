"""Cross-site requests and secure transport."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from aiohttp.web import Request

from gateway.admission.client_address import client_address
from gateway.config.schema import Server
from gateway.console.guard import has_tls, is_cross_site, is_secure_transport

TLS = Server(public_url="https://gateway.example.org")
ON_A_PORT = Server(public_url="https://gateway.example.org:8443/behind/a/path")
WITHOUT_TLS = Server(public_url="http://gateway.example.org")
DEFAULT = Server()
BEHIND = Server(trusted_proxies=("127.0.0.1/32", "10.0.0.0/8"))


def request(host: str, peer: str = "127.0.0.1", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return make_mocked_request("POST", "/", headers={"Host": host} | named).clone(remote=peer)


@pytest.mark.parametrize(
    ("server", "host", "origin", "allowed"),
    [
        (DEFAULT, "127.0.0.1:8080", "http://127.0.0.1:8080", True),
        (DEFAULT, "LOCALHOST:8080", "http://localhost:8080", True),
        (DEFAULT, "[::1]:8080", "http://[::1]:8080", True),
        (DEFAULT, "127.0.0.1:8080", "https://127.0.0.1:8080", False),
        (DEFAULT, "127.0.0.1:8080", "http://127.0.0.1:9090", False),
        (DEFAULT, "127.0.0.1:8080", "http://localhost:8080", False),
        (TLS, "127.0.0.1:8080", "https://gateway.example.org", True),
        (TLS, "gateway.example.org", "https://gateway.example.org", True),
        (TLS, "gateway.example.org", "http://gateway.example.org", False),
        (TLS, "gateway.example.org", "https://gateway.example.org:8443", False),
        (TLS, "other.example.org", "https://other.example.org", False),
        (TLS, "localhost:8080", "http://localhost:8080", True),
        (ON_A_PORT, "gateway.example.org:8443", "https://gateway.example.org:8443", True),
        (ON_A_PORT, "gateway.example.org:8443", "https://gateway.example.org", False),
        (WITHOUT_TLS, "gateway.example.org", "http://gateway.example.org", True),
        (WITHOUT_TLS, "gateway.example.org", "https://gateway.example.org", False),
    ],
)
def test_allowed_origins(server: Server, host: str, origin: str, allowed: bool) -> None:
    for more in ({}, {"Sec_Fetch_Site": "same-origin"}):
        assert is_cross_site(request(host, Origin=origin, **more), server) is not allowed
    assert is_cross_site(request(host, Origin=origin, Sec_Fetch_Site="cross-site"), server)


@pytest.mark.parametrize(
    ("server", "host", "peer", "private"),
    [
        (DEFAULT, "127.0.0.1:8080", "127.0.0.1", True),
        (DEFAULT, "localhost", "::1", True),
        (DEFAULT, "localhost", "::ffff:127.0.0.1", True),
        (DEFAULT, "127.0.0.1:8080", "192.0.2.7", False),
        (DEFAULT, "gateway.example.org", "127.0.0.1", False),
        (DEFAULT, "localhost.example.org", "127.0.0.1", False),
        (DEFAULT, "127.0.0.1.example.org", "127.0.0.1", False),
        (DEFAULT, "localhost:nonsense", "127.0.0.1", False),
        (DEFAULT, "", "127.0.0.1", False),
        (DEFAULT, "localhost", "", False),
        (WITHOUT_TLS, "gateway.example.org", "127.0.0.1", False),
        (TLS, "gateway.example.org", "127.0.0.1", True),
        (TLS, "gateway.example.org", "10.1.2.3", True),
    ],
)
def test_secure_transport(server: Server, host: str, peer: str, private: bool) -> None:
    assert is_secure_transport(request(host, peer), server) is private


def test_client_address_behind_proxies() -> None:
    proxied = request("localhost", X_Forwarded_For="198.51.100.9, 203.0.113.7, 10.0.0.1")
    assert client_address(proxied, BEHIND.trusted_proxies) == "203.0.113.7"
    assert client_address(proxied, DEFAULT.trusted_proxies) == "127.0.0.1"
    assert not is_secure_transport(proxied, BEHIND)
    assert not is_secure_transport(proxied, DEFAULT)
    assert is_secure_transport(proxied, TLS)
    assert is_secure_transport(request("localhost", X_Forwarded_For="127.0.0.1"), BEHIND)


@pytest.mark.parametrize(
    "header",
    [
        *("Forwarded", "Via", "X_Forwarded_For", "X_Forwarded_Proto", "X_Original_Forwarded_For"),
        *("X_Real_IP", "X_Client_IP", "True_Client_IP", "CF_Connecting_IP", "Fly_Client_IP"),
        *("Fastly_Client_IP", "X_Cluster_Client_IP", "X_Envoy_External_Address"),
    ],
)
def test_behind_a_proxy_that_is_not_configured(header: str) -> None:
    """The proxy's client may be anywhere, and without TLS."""
    assert not is_secure_transport(request("127.0.0.1", **{header: "127.0.0.1"}), DEFAULT)


def test_tls_is_configured() -> None:
    assert all(has_tls(server) for server in (TLS, ON_A_PORT))
    assert has_tls(Server(public_url="HTTPS://gateway.example.org"))
    assert not any(has_tls(server) for server in (WITHOUT_TLS, DEFAULT))
