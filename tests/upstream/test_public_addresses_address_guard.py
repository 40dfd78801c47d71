"""Which addresses may be connected to."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.upstream.public_addresses import AddressRefused, check_address

PUBLIC = ["1.1.1.1", "8.8.8.8", "193.0.6.139", "2606:4700::1111", "2a00:1450::1"]
REFUSED = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1"),
    *("172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.0.170"),
    *("192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1"),
    *("239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    *("fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00::1", "ff02::1", "2001:db8::1"),
    *("2002:7f00:1::", "2001:0:1::1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1"),
    *("5f00::1", "5f00:ffff::1", "3fff::1", "3fff:fff:ffff::1", "::ffff:1.1.1.1", "::ffff:0:0"),
    *("::ffff:255.255.255.255", "::ffff:0:1.1.1.1", "100:0:0:1::1", "2620:4f:8000::1", "4000::1"),
    *("192.31.196.1", "192.52.193.1", "192.175.48.1"),
    *("localhost", "", "127.1", "0x7f000001", "2130706433", "example.org"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize("address", REFUSED)
def test_other_addresses(address: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(address)


def test_allowed_networks() -> None:
    allowed = [ip_network("10.1.2.0/24"), ip_network("fd00::/64")]
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "1.1.1.1"):
        check_address(address, allowed)
    for address in ("10.1.3.1", "fd00:0:0:1::1", "127.0.0.1"):
        with pytest.raises(AddressRefused):
            check_address(address, allowed)
