"""Addresses in networks, in all notations."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.admission.client_address import in_networks

NETWORKS = tuple(
    map(ip_network, ("10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "fe80::/10", "::1/128"))
)


@pytest.mark.parametrize(
    ("address", "belongs"),
    [
        ("10.0.0.0", True),
        ("10.255.255.255", True),
        ("11.0.0.0", False),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("2001:db8:1::7", True),
        ("2001:0DB8:0001:0000:0000:0000:0000:0007", True),
        ("2001:db9::7", False),
        ("fe80::1%eth0", True),
        ("::1", True),
        ("::ffff:10.1.2.3", True),
        ("::ffff:a01:203", True),
        ("::ffff:11.1.2.3", False),
        ("::10.1.2.3", False),
        ("10.1.2.3:4711", False),
        ("10.01.2.3", False),
        ("nonsense", False),
        ("", False),
    ],
)
def test_matching_networks(address: str, belongs: bool) -> None:
    assert in_networks(address, NETWORKS) is belongs


def test_no_networks() -> None:
    assert not in_networks("10.0.0.1", ())
