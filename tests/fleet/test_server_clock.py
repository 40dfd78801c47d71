from __future__ import annotations

import time

import pytest

from gateway.fleet.server_clock import ServerClock, steady_microseconds


def set_back(seconds: float, clock: ServerClock, samples: int = 1, jitter: int = 0) -> None:
    """The server's clock is this much behind the steady one."""
    for number in range(samples):
        sent = steady_microseconds()
        asymmetry = jitter if number % 2 else 0
        server = sent + 100 - round(seconds * 1e6) + asymmetry
        clock.add_sample(sent, server, sent + 200 + 2 * asymmetry)


def test_before_a_sample_it_is_the_machines_own() -> None:
    assert abs(ServerClock().now() - time.time_ns() // 1000) < 100_000


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 5.0])
def test_it_is_the_servers_whatever_the_machines_says(seconds: float) -> None:
    clock = ServerClock()
    behind = steady_microseconds() / 1e6 - (time.time() + seconds)
    set_back(behind, clock)
    before, now, after = time.time(), clock.now() / 1e6, time.time()
    assert before - 0.05 < now - seconds < after + 0.05
    assert clock.machine_offset == pytest.approx(-seconds, abs=0.05)


def test_a_step_of_the_machines_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock()
    before = clock.now()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= clock.now() - before < 100_000


def test_the_sample_with_the_shortest_round_trip_is_right() -> None:
    clock = ServerClock()
    set_back(10, clock)
    first = clock.now() - steady_microseconds()
    set_back(10, clock, samples=7, jitter=50_000)
    assert abs(clock.now() - steady_microseconds() - first) < 1000


def test_small_differences_are_corrected_slowly() -> None:
    clock = ServerClock()
    set_back(10, clock)
    set_back(10.1, clock, samples=8)
    error = clock.now() - steady_microseconds() + 10_100_000
    assert 0 < error < 100_000
    set_back(10.1, clock, samples=100)
    assert abs(clock.now() - steady_microseconds() + 10_100_000) < 1000


def test_a_step_of_the_servers_clock_is_followed_at_once() -> None:
    clock = ServerClock()
    set_back(10, clock)
    set_back(20, clock)
    assert abs(clock.now() - steady_microseconds() + 20_000_000) < 1000
