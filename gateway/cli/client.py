"""The client's side of the admin socket, for commands.

Commands always speak HTTP over the socket. Where no gateway runs, the command takes the state
directory's lock and serves the socket itself for as long as it needs an answer, so there is one
way to do a thing and two commands at once are as safe as one. It must not know what is asked.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import click
import orjson

from gateway.admin import API_PATH
from gateway.admin.socket import AdminSocketError, serve_admin, socket_path
from gateway.store.errors import StateLocked, StoreError
from gateway.store.lock import lock_state_dir

EX_UNAVAILABLE = 69
"""Exit code of sysexits.h: the gateway that should answer does not."""

_CONNECT_TIMEOUT = 5.0  # seconds for somebody to answer
_REQUEST_TIMEOUT = 30.0  # seconds for an answer
_RETRY_INTERVAL = 0.05
_TRIES = 3


class CommandRefused(click.ClickException):
    """The gateway said no, or the state directory cannot be used: exit code 1. `mistakes` are those
    of the fields that were sent, where it told any: the `path` of a field and a `message` each."""

    def __init__(self, message: str, field_errors: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.field_errors = field_errors


class GatewayUnreachable(click.ClickException):
    """Somebody holds the state directory and does not answer, or nobody is there to."""

    exit_code = EX_UNAVAILABLE


class Client:
    """Asks whoever serves the admin socket of a state directory; synchronous, for one command.

    Paths are below `/admin/api`; `part` quotes what a person typed. Raises Refused with the
    gateway's own words, and Unreachable.
    """

    def __init__(self, runner: asyncio.Runner, line: _AdminConnection) -> None:
        self._runner = runner
        self._line = line

    @property
    def is_standalone(self) -> bool:
        """Whether no gateway runs, so that the command does all of it itself."""
        return self._line.is_standalone

    def get(self, path: str, **query: Any) -> Any:
        present = {name: str(value) for name, value in query.items() if value is not None}
        return self._runner.run(self._line.request("GET", path, query=present))

    def post(self, path: str, body: Any) -> Any:
        return self._runner.run(self._line.request("POST", path, body=body))

    def put(self, path: str, body: Any) -> Any:
        return self._runner.run(self._line.request("PUT", path, body=body))

    def patch(self, path: str, body: Any) -> Any:
        return self._runner.run(self._line.request("PATCH", path, body=body))

    def delete(self, path: str) -> Any:
        return self._runner.run(self._line.request("DELETE", path))


@contextmanager
def connect(
    state_dir: Path,
    *,
    may_create: bool = False,
    may_serve: bool = True,
    timeout: float = _REQUEST_TIMEOUT,
) -> Iterator[Client]:
    """Somebody to ask, until the block ends: print afterwards, others may be waiting.

    `may_create`: a state directory that is not there is made. `may_serve`: where no gateway runs
    the command stands in for it; otherwise Unreachable. `longest`: seconds that an answer may take.
    """
    if not may_create and not state_dir.is_dir():
        raise CommandRefused(
            f"There is no state directory {state_dir.absolute()}: nothing was ever kept there. "
            "Name another with --state-dir or --config."
        )
    try:
        line = _AdminConnection(state_dir, may_serve, timeout)
    except AdminSocketError as error:
        raise CommandRefused(str(error)) from None
    with asyncio.Runner() as runner:
        try:
            runner.run(line.open())
            yield Client(runner, line)
        finally:
            runner.run(line.close())


def quote_path(text: str) -> str:
    """One step of a path, whatever it contains."""
    return quote(text, safe="")


class _AdminConnection:
    """The connection behind a Client, and the socket's other end where nobody else serves it."""

    def __init__(self, state_dir: Path, may_serve: bool, longest: float) -> None:
        self._state_dir = state_dir
        self._may_serve = may_serve
        self._longest = longest
        self._socket = socket_path(state_dir)
        self._held = AsyncExitStack()
        self._holder: int | None = None
        self.is_standalone = False

    async def open(self) -> None:
        """Returns when somebody answers."""
        deadline = asyncio.get_running_loop().time() + _CONNECT_TIMEOUT
        while not (await self._answered(deadline) or await self._served()):
            if asyncio.get_running_loop().time() > deadline:
                raise self._silence()
            await asyncio.sleep(_RETRY_INTERVAL)

    async def close(self) -> None:
        await self._held.aclose()

    async def request(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None
    ) -> Any:
        """The answer's JSON. What was lost on the way is asked again, unless it may have been
        done and must not be done twice."""
        for _ in range(_TRIES):
            try:
                return await self._exchange(method, path, query, body)
            except aiohttp.ClientConnectorError:
                pass
            except (aiohttp.ClientError, ConnectionError) as error:
                if method == "POST":
                    raise GatewayUnreachable(
                        "The gateway went away before it answered: look whether it was done."
                    ) from error
            except TimeoutError:
                raise GatewayUnreachable(
                    f"The gateway has not answered for {self._longest:g} s."
                ) from None
            await self.open()
        raise GatewayUnreachable("The gateway went away before it answered.")

    async def _exchange(
        self, method: str, path: str, query: dict[str, str] | None, body: Any
    ) -> Any:
        content = None if body is None else orjson.dumps(body)
        async with (
            aiohttp.ClientSession(
                # A connection for each request: an idle one could be closed under the next.
                connector=aiohttp.UnixConnector(str(self._socket), force_close=True),
                timeout=aiohttp.ClientTimeout(total=self._longest),
            ) as session,
            session.request(
                method, f"http://gateway{API_PATH}{path}", params=query, data=content
            ) as reply,
        ):
            answer = await reply.read()
        if reply.status >= 400:
            error = orjson.loads(answer)["error"]
            raise CommandRefused(error["message"], error.get("mistakes", ()))
        return orjson.loads(answer) if answer else None

    async def _answered(self, deadline: float) -> bool:
        """Whether a living process serves the socket. Raises Unreachable where it is silent."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._exchange("GET", "", None, None)
        except TimeoutError:
            raise self._silence() from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, PermissionError):
                raise CommandRefused(_not_ours(self._socket)) from None
            return False
        except (aiohttp.ClientError, ConnectionError):
            return False  # it is going; its lock follows
        return True

    async def _served(self) -> bool:
        """Whether we could take the place of a daemon: not while somebody holds the lock."""
        # Imported here: with a gateway to ask, the ledger is half of a command's start.
        from gateway.admin.api_console import open_admin_app

        if not self._may_serve:
            raise GatewayUnreachable(f"No gateway runs on the state directory {self._state_dir}.")
        if self._state_dir.exists() and self._state_dir.stat().st_uid != os.geteuid():
            raise CommandRefused(
                _not_ours(self._state_dir)
            )  # what we made there would not be theirs
        try:
            self._held.enter_context(lock_state_dir(self._state_dir))
            admin = await self._held.enter_async_context(open_admin_app(self._state_dir, _now))
            await self._held.enter_async_context(serve_admin(admin, self._state_dir))
        except StateLocked as error:
            self._holder = error.pid
            return False
        except (StoreError, AdminSocketError, OSError) as error:
            raise CommandRefused(str(error)) from None
        self.is_standalone = True
        return True

    def _silence(self) -> GatewayUnreachable:
        who = f"process {self._holder}" if self._holder else "another process"
        return GatewayUnreachable(
            f"The state directory {self._state_dir} is in use by {who}, but its admin socket has "
            f"not answered for {_CONNECT_TIMEOUT:g} s."
        )


def _now() -> int:
    return time.time_ns() // 1000


def _not_ours(path: Path) -> str:
    return f"{path} belongs to another user: run this as the gateway's own user."
