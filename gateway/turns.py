"""Long work of requests takes turns that are fair between keys: the next one goes to the key that
has used least processor time lately, so that none waits for what another has queued."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import chain
from time import thread_time
from typing import Any, ClassVar, Final, TypeVar, TypeVarTuple, cast

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

THREADS: Final = 2
"""A key has one of them at most, so that the next key finds another; more would only compete for
the interpreter's lock."""

LONG: Final = 0.01
"""Seconds of a piece on the event loop."""
IN_THREADS: Final = 1.0
"""Seconds for which a key's pieces are not run there after one that was longer."""

SWITCH_INTERVAL: Final = 0.001
"""Seconds that the event loop waits for the interpreter's lock while a thread works. Python's
default of 0.005 would be paid several times per request; without such work it is the better one, as
every switch costs."""


class _Piece:
    """A piece of work for one turn; `seconds` of the processor are known when it has run."""

    __slots__ = ("_work", "done", "key", "seconds")

    def __init__(self, key: str, work: Callable[[], object]) -> None:
        self.key, self._work, self.seconds = key, work, 0.0
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def run(self) -> object:
        began = thread_time()
        try:
            return self._work()
        finally:
            self.seconds = thread_time() - began


class Turns(ABC):
    """The pieces that wait, by key, and the seconds that each key has used since nothing waited.
    Those of a key are in the order in which its requests began: later stages of a request do not
    wait for the first ones of others."""

    __slots__ = ("_count", "_least", "_used", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[str, int, _Piece]]] = {}
        self._used: dict[str, float] = {}
        self._least = 0.0  # used by the key that had the last turn
        self._count = 0

    async def run(
        self, key: str, request: str, function: Callable[[*Args], Result], *args: *Args
    ) -> Result:
        """The result of the function, in a turn of the key. Raises what it raises. `request` is the
        id of the request, which tells when it began."""
        piece = _Piece(key, partial(function, *args))
        self._add(request, piece)
        try:
            return cast(Result, await piece.done)
        except Exception:
            del piece.done  # the traceback would keep it, and the future the traceback
            raise

    @abstractmethod
    def _start(self) -> None:
        """Gives a turn to what waits, if there is one to give."""

    def _add(self, request: str, piece: _Piece) -> None:
        self._count += 1
        if piece.key not in self._waiting:
            self._waiting[piece.key] = []
            self._used[piece.key] = max(self._used.get(piece.key, 0.0), self._least)
        heappush(self._waiting[piece.key], (request, self._count, piece))
        self._start()

    def _next(self, busy: Collection[str] = ()) -> _Piece | None:
        """The piece whose turn it is, of another key than those that are busy."""
        while ready := [key for key in self._waiting if key not in busy]:
            key = min(ready, key=self._used.__getitem__)
            *_, piece = heappop(self._waiting[key])
            if not self._waiting[key]:
                del self._waiting[key]
            if not piece.done.done():  # cancelled
                self._least = max(self._least, self._used[key])
                return piece
        return None

    def _charge(self, piece: _Piece, *, is_idle: bool) -> None:
        self._used[piece.key] += piece.seconds
        if is_idle and not self._waiting:
            self._used.clear()
            self._least = 0.0


class LoopTurns(Turns):
    """One piece in an iteration of the event loop: whatever else is ready runs between two. A key
    that had a `LONG` one has the worker for a while: how long it takes shows only afterwards."""

    __slots__ = ("_is_busy", "_until", "_worker")

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._is_busy = False
        self._until: dict[str, float] = {}
        self._worker = worker

    def _add(self, request: str, piece: _Piece) -> None:
        is_slow = self._until.get(piece.key, 0.0) > asyncio.get_running_loop().time()
        if is_slow:
            self._worker._add(request, piece)
        else:
            super()._add(request, piece)

    def _start(self) -> None:
        if self._is_busy or (piece := self._next()) is None:
            return
        self._is_busy = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self._go_on)
        try:
            piece.done.set_result(piece.run())
        except Exception as error:
            piece.done.set_exception(error)
        if piece.seconds > LONG:
            now = loop.time()
            self._until = {key: until for key, until in self._until.items() if until > now}
            self._until[piece.key] = now + IN_THREADS
            for request, _, other in self._waiting.pop(piece.key, ()):
                self._worker._add(request, other)
        self._charge(piece, is_idle=True)

    def _go_on(self) -> None:
        self._is_busy = False
        self._start()


class Worker(Turns):
    """Threads for what would hold up the event loop."""

    __slots__ = ("_running", "_threads")

    _pieces_in_threads: ClassVar[int] = 0
    _default_interval: ClassVar[float] = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="worker")
        self._running: set[str] = set()

    def run_later(self, function: Callable[[], object]) -> None:
        """Runs a function for whose result nobody waits; at the end of the process it may not
        run."""
        with suppress(RuntimeError):
            self._threads.submit(function)

    def close(self) -> None:
        for *_, piece in chain.from_iterable(self._waiting.values()):
            piece.done.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self._running) < THREADS and (piece := self._next(self._running)) is not None:
            self._running.add(piece.key)
            self._count_in_threads(1)
            work = loop.run_in_executor(self._threads, piece.run)
            work.add_done_callback(partial(self._end, piece))

    def _end(self, piece: _Piece, work: asyncio.Future[object]) -> None:
        self._running.discard(piece.key)
        self._count_in_threads(-1)
        self._charge(piece, is_idle=not self._running)
        error = None if work.cancelled() else work.exception()
        if piece.done.done() or work.cancelled():
            piece.done.cancel()
        elif error is not None:
            piece.done.set_exception(error)
        else:
            piece.done.set_result(work.result())
        self._start()

    @classmethod
    def _count_in_threads(cls, change: int) -> None:
        """The interpreter has one interval, whatever the number of workers."""
        if not Worker._pieces_in_threads:
            Worker._default_interval = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_INTERVAL)
        Worker._pieces_in_threads += change
        if not Worker._pieces_in_threads:
            sys.setswitchinterval(Worker._default_interval)
