"""The pool of request bodies: its limit, the shares of clients, and that nothing of it is lost."""

from __future__ import annotations

import pytest

from gateway.admission.body_pool import BodyPool
from gateway.errors import ServiceUnavailable, TooManyRequests

LIMIT = 100


def test_a_client_gets_half_of_it() -> None:
    pool = BodyPool()
    pool.add("key", "address", 40)
    pool.check("key", "address", 10, LIMIT)
    with pytest.raises(TooManyRequests, match="this key: request bodies in flight have 40 of 50"):
        pool.check("key", "other address", 11, LIMIT)
    with pytest.raises(TooManyRequests, match="this address: request bodies in flight"):
        pool.check("other key", "address", 11, LIMIT)
    pool.check("other key", "other address", 50, LIMIT)


def test_all_clients_together_get_no_more_than_all_of_it() -> None:
    pool = BodyPool()
    for number in range(3):
        pool.add(f"key {number}", f"address {number}", 30)
    with pytest.raises(ServiceUnavailable):
        pool.check("key", "address", 11, LIMIT)
    pool.check("key", "address", 10, LIMIT)


def test_nothing_is_kept_of_a_client_that_has_gone() -> None:
    pool = BodyPool()
    pool.add("key", "address", 30)
    pool.add("key", "other address", 20)
    pool.add("key", "address", -30)
    pool.check("other key", "address", 50, LIMIT)
    pool.add("key", "other address", -20)
    assert (pool.total, pool._by_client) == (0, {})
