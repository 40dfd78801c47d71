"""What a replica has of the shared limits, and its session, under which the server knows that.

The server takes the running requests of a session back when it is not renewed. A replica begins a
new one after the connection was lost, and where the server has lost everything: it adds its running
requests and the last minute's entries again, which counts nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from math import inf
from secrets import token_hex
from typing import Any, Final

from gateway.shared.connection import Connection, Script, Word
from gateway.shared.errors import CommandFailed, SharedError, SharedLost

log = logging.getLogger(__name__)

LIFE: Final = 10.0
"""Seconds for which a session that is not renewed keeps its running requests."""

INTERVAL: Final = 1.0
"""Seconds between renewals."""

ABSENT_AFTER: Final = 3.0
"""Seconds without a session of a replica that had one; one that never had is absent at once."""

REJOIN: Final = 1.0
"""Seconds that all replicas have to add what they know, before a server that has lost everything
decides again."""

WINDOW: Final = 60_000_000
"""Microseconds in which entries count."""

LONGEST_REJOIN: Final = 5.0
"""The same where a replica has many entries."""

_ROWS: Final = 300
"""Rows of one script."""

_CHUNKS_AT_ONCE: Final = 4
_ROWS_PER_SECOND: Final = 20_000
"""So many are added at least."""

_KEPT_WITHDRAWN: Final = 10_000

JOIN: Final = Script("join")
RENEW: Final = Script("renew")
SETTLE: Final = Script("settle")


class Entry:
    """What a request has acquired: one request and `tokens` of each of the `minute_bases` at `time`
    (the server's, in microseconds), and a place among the running requests of `running_bases`."""

    __slots__ = ("id", "keys", "minute_bases", "running_bases", "time", "tokens")

    def __init__(
        self,
        id: str,
        keys: tuple[str, ...],
        minute_bases: tuple[tuple[str, bool, bool], ...],
        running_bases: tuple[str, ...],
    ) -> None:
        """`minute_bases`: whether requests are limited, and tokens."""
        self.id, self.keys = id, keys
        self.minute_bases, self.running_bases = minute_bases, running_bases
        self.time, self.tokens = 0, 0


class Session:
    """`name` is the replica's. `is_joined`: the server knows everything of this replica."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name
        self.id = ""
        self.is_joined = False
        self.replicas: tuple[str, ...] = (name,)
        """Names of all replicas with a session, as they were last known."""
        self._heard_of: dict[str, float] = {}
        """When each replica was last known to have a session, by the loop's time."""
        self.on_joined: list[Callable[[], None]] = []
        self.on_heard: list[Callable[[], None]] = []
        """Called about once a second, after `is_absent` may have changed."""
        self._boot, self._count = token_hex(5), count(1)
        root = connection.root
        self.keys = (f"{root}sessions", f"{root}running", f"{root}generation")
        self._entries = deque[Entry]()
        self._running = Counter[str]()
        self._withdrawn = deque[Entry](maxlen=_KEPT_WITHDRAWN)
        self._offset = 0.0
        self._joining: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises `SharedError`."""
        connection, loop = self.connection, asyncio.get_running_loop()
        self._loop = loop
        connection.on_lost.append(self._lost)
        connection.on_back.append(self.rejoin)
        connection.subscribe(f"{self.keys[0]}:lost", self._other_lost)
        connection.subscribe(f"{self.keys[0]}:joined", self._other_joined)
        await self.join()
        self._renewing = asyncio.ensure_future(self._keep())

    async def close(self) -> None:
        """Its running requests have ended: their places are free at once."""
        for task in (self._renewing, self._joining):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        with suppress(SharedError):
            if self.is_joined:
                await self.connection.run(JOIN, self.keys, ("leave", self.id))
        self.is_joined = False

    def new_id(self) -> str:
        """Of an entry; no other one of any replica has it."""
        return f"{self._boot}{next(self._count):x}"

    def now(self) -> int:
        """The server's time, as far as it is known."""
        return int(self._loop.time() * 1e6 + self._offset)

    def told(self, now: int) -> None:
        """The server's time, as an answer says it."""
        self._offset = now - self._loop.time() * 1e6

    def begin(self, entry: Entry, time: int, tokens: int) -> None:
        """A request runs."""
        entry.time, entry.tokens = time, tokens
        for base in entry.running_bases:
            self._running[base] += 1
        if entry.minute_bases:
            self._expire(time)
            self._entries.append(entry)

    def adjust(self, entry: Entry, tokens: int, what: str = "adjust") -> None:
        """Changes the tokens at their time; `what` is `end` too, for a request that has ended, and
        `withdraw`, for one that never was."""
        is_withdrawn = what == "withdraw"
        has_changed = tokens != entry.tokens and any(each[2] for each in entry.minute_bases)
        entry.tokens = 0 if is_withdrawn else tokens
        if what != "adjust":
            for base in entry.running_bases:
                self._running[base] -= 1
                if not self._running[base]:
                    del self._running[base]
        if is_withdrawn:
            entry.time = 0
            if self.is_joined:
                self._post(entry, 0, what)
            else:
                self.withdraw(entry)
        elif has_changed or (what == "end" and entry.running_bases):
            self._post(entry, tokens, what)

    def withdraw(self, entry: Entry) -> None:
        """The connection was lost: the server must not count it, whether it knows of it or not."""
        self._withdrawn.append(entry)

    def _post(self, entry: Entry, tokens: int, what: str) -> None:
        running = ["1" if base in entry.running_bases else "" for base in entry.keys]
        words: tuple[Word, ...] = (self.id, entry.id, tokens, what, *running)
        self.connection.post_run(SETTLE, (*self.keys, *entry.keys), words)

    def rejoin(self) -> None:
        """Begins a new session, unless that is under way."""
        self.is_joined = False
        if self._joining is None or self._joining.done():
            self._joining = asyncio.ensure_future(self._join_again())

    async def joined(self) -> None:
        """Waits until the session has begun. Raises `SharedLost`."""
        if not self.is_joined and self._joining is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.connection.server.timeout):
                    await asyncio.shield(self._joining)
        if not self.is_joined:
            raise SharedLost("the limits of this replica are not on the server yet")

    async def join(self) -> None:
        """Raises `SharedError`."""
        run, before = self.connection.run, self.id
        self.is_joined = False
        self.id = session = f"{self.name}/{token_hex(6)}"
        needed = min(LONGEST_REJOIN, REJOIN + len(self._entries) / _ROWS_PER_SECOND)
        life = int(LIFE * 1000), int(needed * 1000)
        (now,) = await run(JOIN, self.keys, ("begin", session, before, *life))
        self.told(now)
        # Only now: what the server admitted before has its answer by now.
        rows, sent = self._rows(tuple(self._entries)), deque[asyncio.Future[Any]]()
        while chunk := _take(rows):
            sent.append(run(JOIN, self.keys, ("add", session, *chunk)))
            if len(sent) > _CHUNKS_AT_ONCE:
                await sent.popleft()
        await asyncio.gather(*sent)
        # From here to the end no turn of the loop may change what runs.
        counts = (("c", base, number) for base, number in self._running.items())
        adding = []
        while chunk := _take(counts):
            adding.append(run(JOIN, self.keys, ("add", session, *chunk)))
        ending = run(JOIN, self.keys, ("end", session, self._expected()))
        self.is_joined = True
        await asyncio.gather(*adding)
        self._heard_all((await ending)[1])
        for callback in self.on_joined:
            callback()

    def _rows(self, entries: tuple[Entry, ...]) -> Iterator[tuple[Word, ...]]:
        oldest = self.now() - WINDOW
        for entry in entries:
            if entry.time > oldest:
                for base, requests, tokens in entry.minute_bases:
                    amount = entry.tokens if tokens else 0
                    yield ("e", base, entry.id, entry.time, int(requests), amount)
        while self._withdrawn:
            entry = self._withdrawn.popleft()
            for base, _, _ in entry.minute_bases:
                yield ("w", base, entry.id)

    async def _join_again(self) -> None:
        try:
            await self.join()
        except SharedError as error:
            self.is_joined = False
            log.warning("the limits could not be shared again: %s", error)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await self._renew()

    async def _renew(self) -> None:
        if not self.connection.is_up:
            return
        if not self.is_joined:
            self.rejoin()
            return
        session = self.id
        try:
            answer = await self.connection.run(RENEW, self.keys, (session, int(LIFE * 1000)))
        except (SharedLost, CommandFailed):
            return
        if session != self.id:
            return
        self.told(answer[0])
        if len(answer) == 1:
            self.rejoin()
        else:
            self._heard_all(answer[1])

    def is_absent(self, name: str) -> bool:
        """Whether the replica of this name has had no session on this server for some seconds."""
        oldest = self._loop.time() - ABSENT_AFTER
        return name != self.name and self._heard_of.get(name, -inf) <= oldest

    def _heard_all(self, sessions: Iterable[bytes]) -> None:
        self._heard(sessions)
        self.replicas = tuple(sorted({_name_of(each) for each in sessions}))
        for callback in self.on_heard:
            callback()

    def _other_joined(self, channel: bytes, session: bytes) -> None:
        self._heard((session,))

    def _heard(self, sessions: Iterable[bytes]) -> None:
        now = self._loop.time()
        self._heard_of.update((_name_of(each), now) for each in sessions)

    def _expected(self) -> int:
        """How many replicas have something to add, where the server knows nothing any more: what it
        says of its sessions is not all of them then."""
        oldest = self._loop.time() - LIFE
        self._heard_of = {name: at for name, at in self._heard_of.items() if at > oldest}
        return max(1, len(self._heard_of.keys() | {self.name}))

    def _other_lost(self, channel: bytes, session: bytes) -> None:
        """Another replica has found a server that knew nothing."""
        if session != self.id.encode() and self.connection.is_up:
            self.rejoin()

    def _lost(self, error: SharedLost) -> None:
        self.is_joined = False

    def _expire(self, now: int) -> None:
        entries = self._entries
        while entries and entries[0].time <= now - WINDOW:
            entries.popleft()


def _take(rows: Iterator[tuple[Word, ...]]) -> list[Word]:
    """The words of the next rows."""
    return [word for row in islice(rows, _ROWS) for word in row]


def _name_of(session: bytes) -> str:
    return session.decode().partition("/")[0]
