"""One pipelined connection to a Valkey server: answers arrive in the order of the commands.

Commands of one iteration of the event loop leave in one write. The server counts as lost if
commands are pending and no answer has arrived for `timeout` seconds, or if one command is pending
for three times as long. One timer watches all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from libvalkey import LibvalkeyError, Reader

from gateway.fleet.valkey.errors import CommandFailed, SharedError, SharedLost

MAX_PENDING: Final = 50_000
"""The number of pending commands beyond which the server counts as lost."""

RECHECK_DELAY: Final = 0.02
"""Seconds between a timeout and the loss: if the event loop itself was late, the answer may already
be in the socket's buffer."""

_MAX_WAIT_FACTOR: Final = 3
"""A single command may take this many timeouts, as long as others are answered meanwhile."""

_UNUSABLE: Final = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "OOM"}
    | {"READONLY", "NOAUTH"}
)
"""First words of errors after which this connection is of no use."""

_NOTHING: Final = object()

OnMessage = Callable[[bytes, bytes], None]
"""Gets the channel's name and the message."""


class _Pending(NamedTuple):
    """A command without an answer. `unloaded` packs it with the text of its script, for a server
    that does not know the digest. `orphan` gets the answer if the caller was cancelled meanwhile,
    or None if the connection was lost."""

    sent_at: float
    future: asyncio.Future[Any] | None
    unloaded: Callable[[], bytes] | None
    orphan: Callable[[Any], None] | None = None

    def resolve(self, answer: Any) -> None:
        if self.future is not None and not self.future.done():
            if isinstance(answer, SharedError):
                self.future.set_exception(answer)
            else:
                self.future.set_result(answer)
        elif self.orphan is not None:
            self.orphan(None if isinstance(answer, SharedError) else answer)


class Link(asyncio.Protocol):
    """`on_lost` is called once. `observe` gets the duration of each command in seconds."""

    def __init__(
        self,
        timeout: float,
        on_lost: Callable[[SharedLost], None],
        observe: Callable[[float], None] | None = None,
        on_message: OnMessage | None = None,
    ) -> None:
        self._timeout, self._on_lost = timeout, on_lost
        self._observe, self._on_message = observe, on_message
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(replyError=CommandFailed, notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._pending = deque[_Pending]()
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._late: _Pending | None = None
        self._answered_at = 0.0
        self.is_lost = False

    def call(
        self,
        command: bytes,
        unloaded: Callable[[], bytes] | None = None,
        orphan: Callable[[Any], None] | None = None,
    ) -> asyncio.Future[Any]:
        """The future answer to a packed command; its exception is `CommandFailed` or
        `SharedLost`."""
        future = self._loop.create_future()
        if self.is_lost:
            future.set_exception(SharedLost("the connection is closed"))
        else:
            self._send(command, _Pending(self._loop.time(), future, unloaded, orphan))
        return future

    def post(self, command: bytes, unloaded: Callable[[], bytes] | None = None) -> None:
        """Sends a packed command of which nobody needs the answer."""
        if not self.is_lost:
            self._send(command, _Pending(self._loop.time(), None, unloaded))

    def close(self, reason: str = "the connection is closed") -> None:
        self._lose(SharedLost(reason))

    def _send(self, command: bytes, pending: _Pending) -> None:
        if len(self._pending) >= MAX_PENDING:
            self._pending.append(pending)
            self._lose(SharedLost(f"{MAX_PENDING:,} commands have no answer"))
            return
        self._pending.append(pending)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(command)
        if self._timer is None:
            self._timer = self._loop.call_at(pending.sent_at + self._timeout, self._check)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and unsent:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def _check(self) -> None:
        """Checks the oldest command at the time by which an answer was due when the timer was
        set."""
        self._timer = None
        if not self._pending:
            return
        oldest, now = self._pending[0], self._loop.time()
        waits_from = max(oldest.sent_at, self._answered_at)
        due = min(waits_from + self._timeout, oldest.sent_at + _MAX_WAIT_FACTOR * self._timeout)
        if now >= due:
            if self._late is oldest:
                self._lose(SharedLost(f"no answer within {self._timeout:g} s"))
                return
            self._late, due = oldest, now + RECHECK_DELAY
        self._timer = self._loop.call_at(due, self._check)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error is not None else ""
        self._lose(SharedLost(f"the server closed the connection{reason}"))

    def data_received(self, data: bytes) -> None:
        self._answered_at = self._loop.time()
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not _NOTHING:
                self._answer(answer)
        except LibvalkeyError as error:
            self._lose(SharedLost(f"what answers is no Valkey server: {error}"))

    def _answer(self, answer: Any) -> None:
        if self._on_message is not None and type(answer) is list and answer[:1] == [b"message"]:
            self._on_message(answer[1], answer[2])
            return
        if not self._pending:  # an error before the server closes the connection, say
            self._lose(SharedLost(f"the server said: {answer!r:.200}"))
            return
        pending = self._pending.popleft()
        if self._observe is not None:
            self._observe(self._answered_at - pending.sent_at)
        if not isinstance(answer, CommandFailed):
            pending.resolve(answer)
            return
        word = str(answer).partition(" ")[0]
        if word == "NOSCRIPT" and pending.unloaded is not None:
            again = pending._replace(sent_at=self._loop.time(), unloaded=None)
            self._send(pending.unloaded(), again)
        elif word in _UNUSABLE:
            pending.resolve(SharedLost(str(answer)))
            self._lose(SharedLost(str(answer)))
        else:
            pending.resolve(answer)

    def _lose(self, error: SharedLost) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending, self._unsent = self._pending, deque(), []
        for each in pending:
            each.resolve(SharedLost(str(error)))
        self._on_lost(error)
