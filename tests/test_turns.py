"""Turns of long work are fair between keys, and first come, first served between one's requests."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator

import pytest

from gateway.turns import LONG, SWITCH_INTERVAL, THREADS, LoopTurns, Turns, Worker

SHORT = 0.002
MIDDLE = 0.008


def work(seconds: float) -> None:
    """Use the processor."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


class Order:
    """The order in which pieces of work ran."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.names: list[str] = []

    def ask(self, key: str, request: str, seconds: float = SHORT) -> asyncio.Task[None]:
        """Ask for a turn."""

        async def run() -> None:
            await self._turns.run(key, request, piece)

        def piece() -> None:
            self.names.append(key + request)
            work(seconds)

        return asyncio.ensure_future(run())


@pytest.fixture(params=[LoopTurns, Worker])
def turns(request: pytest.FixtureRequest, worker: Worker) -> Turns:
    return LoopTurns(worker) if request.param is LoopTurns else worker


async def test_a_key_does_not_wait_for_what_another_has_queued(turns: Turns) -> None:
    order = Order(turns)
    asked = [order.ask("a", str(number), MIDDLE) for number in range(20)]
    while not order.names:
        await asyncio.sleep(0)
    asked += [order.ask("b", str(number)) for number in range(3)]
    await asyncio.gather(*asked)
    assert all(order.names.index(f"b{number}") <= 6 for number in range(3)), order.names


async def test_the_key_that_has_used_least_is_next(worker: Worker) -> None:
    """By seconds, not by pieces."""
    order = Order(LoopTurns(worker))
    long = [order.ask("a", str(number), MIDDLE) for number in range(4)]
    short = [order.ask("b", str(number)) for number in range(10)]
    await asyncio.gather(*long, *short)
    assert sum(name.startswith("b") for name in order.names[:6]) >= 4, order.names


async def test_a_key_saves_no_turns_while_it_does_nothing(worker: Worker) -> None:
    """One that comes late has no more than its share from then on."""
    order = Order(LoopTurns(worker))
    early = [order.ask("a", str(number), SHORT) for number in range(12)]
    while len(order.names) < 6:
        await asyncio.sleep(0)
    late = [order.ask("b", str(number), SHORT) for number in range(6)]
    await asyncio.gather(*early, *late)
    assert {name[0] for name in order.names[6:10]} == {"a", "b"}


async def test_later_stages_of_a_request_precede_the_first_of_others(worker: Worker) -> None:
    turns, stages = LoopTurns(worker), list[str]()

    async def request(name: str) -> None:
        for stage in "123":
            await turns.run("a", name, stages.append, name + stage)

    await asyncio.gather(*(request(name) for name in "xyz"))
    assert [stages.index(f"{name}3") for name in "xyz"] == sorted(
        stages.index(f"{name}3") for name in "xyz"
    )
    assert stages.index("x3") < stages.index("z1") + 2


async def test_nobody_waits_on_the_loop_where_nothing_runs(worker: Worker) -> None:
    running = LoopTurns(worker).run("a", "1", len, "abc")
    with pytest.raises(StopIteration) as ended:
        running.send(None)
    assert ended.value.value == 3


async def test_one_piece_in_an_iteration_of_the_loop(worker: Worker) -> None:
    turns, iterations, ran_at = LoopTurns(worker), 0, list[int]()
    asked = [
        asyncio.ensure_future(turns.run("a", str(number), lambda: ran_at.append(iterations)))
        for number in range(5)
    ]
    while not all(each.done() for each in asked):
        await asyncio.sleep(0)
        iterations += 1
    assert len(set(ran_at)) == 5


async def test_a_key_leaves_the_loop_after_a_long_piece(worker: Worker) -> None:
    turns = LoopTurns(worker)
    queued = [turns.run("a", "1", threading.current_thread) for _ in range(3)]
    _, *threads = await asyncio.gather(turns.run("a", "1", work, 2 * LONG), *queued)
    assert threading.main_thread() not in threads
    assert await turns.run("a", "2", threading.current_thread) is not threading.main_thread()
    assert await turns.run("b", "1", threading.current_thread) is threading.main_thread()


async def test_a_key_has_one_thread_at_a_time(worker: Worker) -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def piece() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(SHORT)
        with lock:
            running -= 1

    await asyncio.gather(*(worker.run("a", str(number), piece) for number in range(6)))
    assert most == 1
    await asyncio.gather(*(worker.run(f"key {n}", "", piece) for n in range(8)))
    assert most == THREADS


async def test_a_piece_that_is_no_longer_wanted_is_left_out(worker: Worker) -> None:
    order = Order(worker)
    asked = [order.ask("a", str(number), MIDDLE) for number in range(3)]
    await asyncio.sleep(0)
    asked[1].cancel()
    asked[0].cancel()  # it runs already
    await asyncio.wait(asked)
    assert order.names == ["a0", "a2"]


async def test_what_it_raises(turns: Turns) -> None:
    """The arguments are not kept by the traceback."""

    class Body:
        pass

    def fail(body: Body) -> None:
        raise ValueError("no")

    async def ask() -> weakref.ref[Body]:
        body = Body()
        known = weakref.ref(body)
        with pytest.raises(ValueError, match="no"):
            await turns.run("a", "1", fail, body)
        return known

    gc.disable()
    try:
        known = await ask()
        await asyncio.sleep(MIDDLE)
        assert known() is None
    finally:
        gc.enable()
    assert await turns.run("a", "2", len, "abc") == 3


async def test_threads_switch_often_only_while_they_work(worker: Worker) -> None:
    before, other = sys.getswitchinterval(), Worker()
    is_seen = threading.Event()
    a = asyncio.ensure_future(worker.run("a", "", is_seen.wait, 10))
    b = asyncio.ensure_future(other.run("", "", time.sleep, SHORT))
    await b
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL)
    is_seen.set()
    await a
    await asyncio.sleep(SHORT)
    assert sys.getswitchinterval() == pytest.approx(before)
    other.close()


async def test_a_closed_worker_leaves_nobody_waiting() -> None:
    worker = Worker()
    asked = [asyncio.ensure_future(worker.run("a", str(n), time.sleep, MIDDLE)) for n in range(3)]
    await asyncio.sleep(SHORT)
    worker.close()
    await asyncio.wait(asked, timeout=5)
    assert [each.cancelled() for each in asked] == [False, True, True]


async def test_keys_that_were_slow_are_forgotten(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.turns.IN_THREADS", 0.0)
    turns = LoopTurns(worker)
    for key in "abc":
        await turns.run(key, "1", work, 2 * LONG)
        await asyncio.sleep(0)
    assert len(turns._until) == 1
