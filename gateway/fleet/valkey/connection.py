"""A replica's connection to the Valkey server, which reconnects whenever it is lost."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from libvalkey import pack_command

from gateway.config.cluster import SharedServer
from gateway.core.histogram import Histogram
from gateway.fleet.valkey.errors import SharedError, SharedLost
from gateway.fleet.valkey.handshake import check, check_again, introduce, server_tls
from gateway.fleet.valkey.link import Link, OnMessage

Word = str | bytes | int | float

MIN_RECONNECT_DELAY: Final = 0.05
MAX_RECONNECT_DELAY: Final = 1.0
"""Bounds in seconds of the delay between attempts to connect: doubled each time, with jitter."""

PING_INTERVAL: Final = 1.0
"""Seconds between pings of the connection for channels, which sends nothing else."""

_PING: Final = pack_command(("PING",))


class Script:
    """A Lua script: the server runs it atomically."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


def load_script(name: str, *, library: str | None = None) -> Script:
    """The file of this name, after that of the `library` whose functions it calls."""
    folder = files("gateway.fleet.valkey") / "scripts"
    names = [name] if library is None else [library, name]
    return Script("\n".join((folder / f"{each}.lua").read_text() for each in names))


ANSWER_SECONDS: Final = (
    *(0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
)
"""Bounds of the durations of commands."""


class Connection:
    """Shared by any number of coroutines.

    Callbacks: `on_lost` with the reason, when the server is lost; `on_back` when it is connected
    again, before any other command is sent. `answers` has the durations of commands."""

    def __init__(self, server: SharedServer, name: str = "gateway") -> None:
        """`name` is shown in the server's CLIENT LIST."""
        self.server, self._name = server, name
        self.on_lost: list[Callable[[SharedLost], None]] = []
        self.on_back: list[Callable[[], None]] = []
        self.answers = Histogram(ANSWER_SECONDS)
        self._scripts: dict[str, Script] = {}
        self._channels: dict[bytes, tuple[OnMessage, Callable[[], None] | None]] = {}
        self._tls: ssl.SSLContext | None = None
        self._commands = _Reconnecting(self._open_commands, self._lost, self._back, server.timeout)
        self._listening: _Reconnecting | None = None

    async def open(self) -> None:
        """Raises `SharedError` if the server cannot be used."""
        self._tls = server_tls(self.server)
        await self._commands.start()

    async def close(self) -> None:
        for each in (self._listening, self._commands):
            if each is not None:
                await each.close()

    @property
    def is_up(self) -> bool:
        return self._commands.link is not None

    @property
    def root(self) -> str:
        """The prefix of all keys, with a hash tag: a script needs all its keys on one node."""
        return f"{{{self.server.prefix}}}:"

    async def check_again(self) -> None:
        """A server that may evict entries by now counts as lost until that is corrected."""
        if (link := self._commands.link) is None:
            return
        try:
            await check_again(link, self.server)
        except SharedLost:
            return
        except SharedError as error:
            link.close(str(error))

    def call(self, *words: Word) -> asyncio.Future[Any]:
        """The answer to a command: bytes, int, None or a list. Raises `SharedLost`, at once if
        the server is lost, or `CommandFailed`."""
        return self._link().call(pack_command(words))

    def post(self, *words: Word) -> None:
        """Send a command without waiting for its answer. It is dropped while the server is lost."""
        if (link := self._commands.link) is not None:
            link.post(pack_command(words))

    def run(
        self,
        script: Script,
        keys: Sequence[Word],
        args: Sequence[Word],
        orphan: Callable[[Any], None] | None = None,
    ) -> asyncio.Future[Any]:
        """The answer of a script. Raises as `call`. If the caller is cancelled, `orphan` gets the
        answer instead, or None if the connection is lost before it arrives."""
        return self._link().call(*self._packed(script, keys, args), orphan)

    def post_run(self, script: Script, keys: Sequence[Word], args: Sequence[Word]) -> None:
        """Runs a script without waiting for its answer, as `post`."""
        if (link := self._commands.link) is not None:
            link.post(*self._packed(script, keys, args))

    def subscribe(
        self, channel: str, on_message: OnMessage, on_begin: Callable[[], None] | None = None
    ) -> None:
        """Call `on_message` for each message of a channel, on a second connection for all channels.
        `on_begin` is called after each subscription, also after a reconnect: earlier messages may
        have been missed."""
        name = channel.encode()
        self._channels[name] = on_message, on_begin
        if self._listening is None:
            self._listening = _Reconnecting(
                self._open_listening, _ignore, self._begin, self.server.timeout, pings=True
            )
            self._listening.begin()
        elif (link := self._listening.link) is not None:
            link.close("another channel")  # it is opened again with all of them

    def _link(self) -> Link:
        if (link := self._commands.link) is None:
            raise SharedLost(self._commands.reason)
        return link

    def _packed(
        self, script: Script, keys: Sequence[Word], args: Sequence[Word]
    ) -> tuple[bytes, Callable[[], bytes]]:
        self._scripts[script.digest] = script
        words = (len(keys), *keys, *args)
        unloaded = partial(pack_command, ("EVAL", script.text, *words))
        return pack_command(("EVALSHA", script.digest, *words)), unloaded

    async def _open_commands(self, on_lost: Callable[[SharedLost], None]) -> Link:
        link = await self._connect(Link(self.server.timeout, on_lost, self.answers.observe))
        try:
            await introduce(link, self.server, self._name)
            await check(link, self.server)
            for script in self._scripts.values():
                await link.call(pack_command(("SCRIPT", "LOAD", script.text)))
        except BaseException:
            link.close()
            raise
        return link

    async def _open_listening(self, on_lost: Callable[[SharedLost], None]) -> Link:
        link = await self._connect(Link(self.server.timeout, on_lost, on_message=self._receive))
        try:
            await introduce(link, self.server, self._name)
            for channel in tuple(self._channels):
                await link.call(pack_command(("SUBSCRIBE", channel)))
        except BaseException:
            link.close()
            raise
        return link

    async def _connect(self, link: Link) -> Link:
        """Raises `SharedError`."""
        address, loop = self.server.address, asyncio.get_running_loop()
        try:
            await loop.create_connection(
                lambda: link,
                address.host,
                address.port,
                ssl=self._tls,
                server_hostname=address.host if self._tls is not None else None,
            )
        except ssl.SSLCertVerificationError as error:
            text = f"the certificate of {address.host} is not valid ({error.verify_message})"
            raise SharedError(f"shared: {text}: set shared.tls.ca") from None
        except (OSError, ssl.SSLError) as error:
            text = f"{address.host}:{address.port} cannot be reached: {error}"
            raise SharedLost(f"shared: {text}") from None
        return link

    def _lost(self, error: SharedLost) -> None:
        for callback in self.on_lost:
            callback(error)

    def _back(self) -> None:
        for callback in self.on_back:
            callback()

    def _receive(self, channel: bytes, message: bytes) -> None:
        if (callbacks := self._channels.get(channel)) is not None:
            callbacks[0](channel, message)

    def _begin(self) -> None:
        for _, on_begin in tuple(self._channels.values()):
            if on_begin is not None:
                on_begin()


class _Reconnecting:
    """Keeps a link open: opens another one whenever it is lost. `opening` raises `SharedError`."""

    def __init__(
        self,
        opening: Callable[[Callable[[SharedLost], None]], Awaitable[Link]],
        on_lost: Callable[[SharedLost], None],
        on_open: Callable[[], None],
        timeout: float,
        *,
        pings: bool = False,
    ) -> None:
        self.link: Link | None = None
        self.reason = "the server was not reached yet"
        self._opening, self._on_lost, self._on_open = opening, on_lost, on_open
        self._timeout, self._pings = max(1.0, 2 * timeout), pings
        self._is_lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises `SharedError` if it cannot be opened now."""
        await self._open()
        self.begin()

    def begin(self) -> None:
        """Opens it as soon as that is possible, and keeps it open."""
        self._task = asyncio.ensure_future(self._keep_open())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        link, self.link = self.link, None
        if link is not None:
            link.close()

    async def _keep_open(self) -> None:
        pause = MIN_RECONNECT_DELAY
        while True:
            if self.link is not None:
                pause = MIN_RECONNECT_DELAY
                await self._wait_until_lost(self.link)
            try:
                await self._open()
            except SharedError as error:
                self.reason = str(error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                pause = min(2 * pause, MAX_RECONNECT_DELAY)

    async def _wait_until_lost(self, link: Link) -> None:
        while self.link is not None:
            try:
                async with asyncio.timeout(PING_INTERVAL if self._pings else None):
                    await self._is_lost.wait()
            except TimeoutError:
                link.post(_PING)

    async def _open(self) -> None:
        opened: list[Link] = []

        def lost(error: SharedLost) -> None:
            if opened and self.link is opened[0]:
                self.link, self.reason = None, str(error)
                self._is_lost.set()
                self._on_lost(error)

        try:
            async with asyncio.timeout(self._timeout):
                opened.append(await self._opening(lost))
        except TimeoutError:
            raise SharedLost(f"shared: no answer within {self._timeout:g} s") from None
        if opened[0].is_lost:
            raise SharedLost("shared: the server closed the connection")
        self._is_lost.clear()
        self.link = opened[0]
        self._on_open()


def _ignore(error: SharedLost) -> None:
    """The channels' connection needs no callback: `on_begin` tells of missed messages."""
