"""Only entries of trusted proxies in `x-forwarded-for` are used."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from gateway.admission.client_address import client_address

PROXIES = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", ["198.51.100.1, 192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", ["198.51.100.1", "192.0.2.7, 127.0.0.2"], "192.0.2.7"),
        ("127.0.0.1", ["nonsense"], "nonsense"),
        ("::1", ["2001:db8::7"], "2001:db8::7"),
        ("::ffff:127.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", ["192.0.2.7, ::ffff:127.0.0.2"], "192.0.2.7"),
        ("192.0.2.9", ["198.51.100.1"], "192.0.2.9"),
        ("127.0.0.1", ["192.0.2.7:51234"], "192.0.2.7"),
        ("127.0.0.1", ["192.0.2.7:1, 127.0.0.2:51234"], "192.0.2.7"),
        ("::1", ["[2001:db8::7]:443"], "2001:db8::7"),
        ("::1", ["[2001:db8::7], [::1]"], "2001:db8::7"),
        ("::1", ["2001:db8::7:443"], "2001:db8::7:443"),
        ("127.0.0.1", ["host:80"], "host:80"),
        ("127.0.0.1", ["[]"], ""),
    ],
)
def test_the_last_stranger_is_the_client(peer: str, forwarded: list[str], address: str) -> None:
    headers = CIMultiDict([("x-forwarded-for", value) for value in forwarded])
    request = make_mocked_request("GET", "/", headers=headers).clone(remote=peer)
    assert client_address(request, PROXIES) == address
    assert client_address(request, ()) == peer
