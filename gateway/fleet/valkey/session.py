"""A replica's session on the Valkey server, and the local record of what it has acquired there.

The server counts the running requests of a session until the session expires or ends. After a lost
connection, and after the server has lost its data, the replica opens a new session and adds its
running requests and the entries of the last minute again. Entries have ids, so none counts twice.
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

from gateway.fleet.valkey.connection import Connection, Word, load_script
from gateway.fleet.valkey.errors import CommandFailed, SharedError, SharedLost

log = logging.getLogger(__name__)

SESSION_TTL: Final = 10.0
"""Seconds after its last renewal when a session expires, and its running requests end to count."""

RENEW_INTERVAL: Final = 1.0
"""Seconds between renewals."""

CHECK_EVERY: Final = 60
"""Renewals between two looks at whether the server evicts entries."""

ABSENT_AFTER: Final = 3.0
"""Seconds without a session of a replica that had one; one that never had is absent at once."""

REJOIN_PERIOD: Final = 1.0
"""Seconds in which replicas add their entries to a server that has lost its data. It admits nothing
meanwhile, unless all of them have finished earlier."""

WINDOW: Final = 60_000_000
"""Microseconds for which an entry counts: the window of limits per minute."""

MAX_REJOIN_PERIOD: Final = 5.0
"""The maximum of `REJOIN_PERIOD` for a replica with very many entries."""

_ROWS_PER_CALL: Final = 300
"""Rows of one call of the script `join`."""

_MAX_CALLS_IN_FLIGHT: Final = 4
_ROWS_PER_SECOND: Final = 20_000
"""A lower bound of the rate at which rows are added."""

_MAX_WITHDRAWN: Final = 10_000

JOIN: Final = load_script("join", library="functions")
RENEW: Final = load_script("renew", library="functions")
SETTLE: Final = load_script("settle", library="functions")


class Entry:
    """The resources that one request has acquired at `time` (Unix µs of the server): one request
    and `tokens` of each holder in `minute_bases`, and one running request of each holder in
    `running_bases`. A holder's base is the prefix of its keys on the server."""

    __slots__ = ("id", "keys", "minute_bases", "running_bases", "time", "tokens")

    def __init__(
        self,
        id: str,
        keys: tuple[str, ...],
        minute_bases: tuple[tuple[str, bool, bool], ...],
        running_bases: tuple[str, ...],
    ) -> None:
        """`keys`: the bases of all limited holders. `minute_bases`: base, whether its requests are
        limited, whether its tokens are."""
        self.id, self.keys = id, keys
        self.minute_bases, self.running_bases = minute_bases, running_bases
        self.time, self.tokens = 0, 0


class Session:
    """`name` is the replica's. `is_joined`: the server has all entries of this replica."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name
        self.id = ""
        self.is_joined = False
        self.replicas: tuple[str, ...] = (name,)
        """Names of all replicas that had a session at the last renewal."""
        self._last_seen: dict[str, float] = {}
        """The loop's time at which each replica was last known to have a session."""
        self.on_joined: list[Callable[[], None]] = []
        self.on_replicas: list[Callable[[], None]] = []
        """Called about once a second, after `is_absent` may have changed."""
        self._boot, self._count = token_hex(5), count(1)
        root = connection.root
        self.keys = (f"{root}sessions", f"{root}running", f"{root}generation")
        self._entries = deque[Entry]()
        self._running = Counter[str]()
        self._withdrawn = deque[Entry](maxlen=_MAX_WITHDRAWN)
        self._offset = 0.0
        self._joining: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the first session and keep it. Raises `SharedError`."""
        connection, loop = self.connection, asyncio.get_running_loop()
        self._loop = loop
        connection.on_lost.append(self._lost)
        connection.on_back.append(self.rejoin)
        connection.subscribe(f"{self.keys[0]}:lost", self._on_other_lost)
        connection.subscribe(f"{self.keys[0]}:joined", self._on_other_joined)
        await self.join()
        self._renewing = asyncio.ensure_future(self._renew_forever())

    async def close(self) -> None:
        """End the session: its running requests count no longer."""
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
        """An id for an entry, unique among all replicas."""
        return f"{self._boot}{next(self._count):x}"

    def now(self) -> int:
        """The server's time in Unix µs, extrapolated from its last answer."""
        return int(self._loop.time() * 1e6 + self._offset)

    def set_server_time(self, now: int) -> None:
        """`now` is the server's time in an answer that has just arrived."""
        self._offset = now - self._loop.time() * 1e6

    def begin(self, entry: Entry, time: int, tokens: int) -> None:
        """Record a request that the server admitted at `time`."""
        entry.time, entry.tokens = time, tokens
        for base in entry.running_bases:
            self._running[base] += 1
        if entry.minute_bases:
            self._expire(time)
            self._entries.append(entry)

    def adjust(self, entry: Entry, tokens: int, what: str = "adjust") -> None:
        """Set the tokens of an entry, without waiting for the server. `what` is one of `adjust`
        (the request goes on), `end` (it has ended) and `withdraw` (it never ran: nothing of it
        counts)."""
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
        """Remember an entry to be removed by the next session, as the server may have it."""
        self._withdrawn.append(entry)

    def _post(self, entry: Entry, tokens: int, what: str) -> None:
        running = ["1" if base in entry.running_bases else "" for base in entry.keys]
        words: tuple[Word, ...] = (self.id, entry.id, tokens, what, *running)
        self.connection.post_run(SETTLE, (*self.keys, *entry.keys), words)

    def rejoin(self) -> None:
        """Open a new session in the background, unless that is already in progress."""
        self.is_joined = False
        if self._joining is None or self._joining.done():
            self._joining = asyncio.ensure_future(self._join_again())

    async def joined(self) -> None:
        """Wait until `is_joined`, at most for the server's timeout. Raises `SharedLost`."""
        if not self.is_joined and self._joining is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.connection.server.timeout):
                    await asyncio.shield(self._joining)
        if not self.is_joined:
            raise SharedLost("the limits of this replica are not on the server yet")

    async def join(self) -> None:
        """Open a new session and add all entries to it. Raises `SharedError`."""
        run, before = self.connection.run, self.id
        self.is_joined = False
        self.id = session = f"{self.name}/{token_hex(6)}"
        needed = min(MAX_REJOIN_PERIOD, REJOIN_PERIOD + len(self._entries) / _ROWS_PER_SECOND)
        life = int(SESSION_TTL * 1000), int(needed * 1000)
        (now,) = await run(JOIN, self.keys, ("begin", session, before, *life))
        self.set_server_time(now)
        # Collected only now: answers arrive in order, so every admission before `begin` is
        # recorded.
        rows, sent = self._rows(tuple(self._entries)), deque[asyncio.Future[Any]]()
        while chunk := _take(rows):
            sent.append(run(JOIN, self.keys, ("add", session, *chunk)))
            if len(sent) > _MAX_CALLS_IN_FLIGHT:
                await sent.popleft()
        await asyncio.gather(*sent)
        # No `await` from here until `is_joined`: requests that start or end meanwhile would be
        # missed.
        counts = (("c", base, number) for base, number in self._running.items())
        adding = []
        while chunk := _take(counts):
            adding.append(run(JOIN, self.keys, ("add", session, *chunk)))
        ending = run(JOIN, self.keys, ("end", session, self._expected()))
        self.is_joined = True
        await asyncio.gather(*adding)
        self._note_all_replicas((await ending)[1])
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

    async def _renew_forever(self) -> None:
        for number in count(1):
            await asyncio.sleep(RENEW_INTERVAL)
            await self._renew()
            if number % CHECK_EVERY == 0:
                await self.connection.check_again()

    async def _renew(self) -> None:
        if not self.connection.is_up:
            return
        if not self.is_joined:
            self.rejoin()
            return
        session = self.id
        try:
            answer = await self.connection.run(RENEW, self.keys, (session, int(SESSION_TTL * 1000)))
        except (SharedLost, CommandFailed):
            return
        if session != self.id:
            return
        self.set_server_time(answer[0])
        if len(answer) == 1:
            self.rejoin()
        else:
            self._note_all_replicas(answer[1])

    def is_absent(self, name: str) -> bool:
        """Whether the replica of this name has had no session on this server for some seconds."""
        oldest = self._loop.time() - ABSENT_AFTER
        return name != self.name and self._last_seen.get(name, -inf) <= oldest

    def _note_all_replicas(self, sessions: Iterable[bytes]) -> None:
        self._note_replicas(sessions)
        self.replicas = tuple(sorted({_name_of(each) for each in sessions}))
        for callback in self.on_replicas:
            callback()

    def _on_other_joined(self, channel: bytes, session: bytes) -> None:
        self._note_replicas((session,))

    def _note_replicas(self, sessions: Iterable[bytes]) -> None:
        now = self._loop.time()
        self._last_seen.update((_name_of(each), now) for each in sessions)

    def _expected(self) -> int:
        """Returns how many replicas should join a server that has lost its data, and with it its
        list of sessions: the replicas that were seen within `SESSION_TTL`."""
        oldest = self._loop.time() - SESSION_TTL
        self._last_seen = {name: at for name, at in self._last_seen.items() if at > oldest}
        return max(1, len(self._last_seen.keys() | {self.name}))

    def _on_other_lost(self, channel: bytes, session: bytes) -> None:
        """Handles that another replica has found that the server had lost its data."""
        if session != self.id.encode() and self.connection.is_up:
            self.rejoin()

    def _lost(self, error: SharedLost) -> None:
        self.is_joined = False

    def _expire(self, now: int) -> None:
        entries = self._entries
        while entries and entries[0].time <= now - WINDOW:
            entries.popleft()


def _take(rows: Iterator[tuple[Word, ...]]) -> list[Word]:
    """The next rows as one flat list of arguments; empty at the end."""
    return [word for row in islice(rows, _ROWS_PER_CALL) for word in row]


def _name_of(session: bytes) -> str:
    return session.decode().partition("/")[0]
