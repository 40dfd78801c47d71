"""A client of the admin API, for commands.

Commands use HTTP over the admin socket of the state directory. Where no gateway runs, the command
takes the directory's lock and serves the API itself while it needs it. So every operation is
implemented once, and concurrent commands are safe.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partialmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import click
import orjson

from gateway.admin import API_PATH
from gateway.admin.api.socket import AdminSocketError, serve_admin, socket_path
from gateway.cli.errors import (
    RUNNING_CONFIG,
    RUNNING_RELEASE,
    CommandRefused,
    GatewayHangs,
    GatewayUnreachable,
    StateDirMissing,
)
from gateway.cli.options import now_us
from gateway.config.cluster import DatabaseServer
from gateway.config.document import ConfigError
from gateway.config.file_errors import command_of_owner, describe_owner
from gateway.config.load import find_database
from gateway.store.errors import StateLocked, StoreError
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir, read_holder

_CONNECT_TIMEOUT = 5.0  # seconds
_REQUEST_TIMEOUT: Final = 30.0  # seconds
_RETRY_INTERVAL: Final = 0.05
_TRIES: Final = 3


@contextmanager
def connect(
    state_dir: Path,
    config: Path | None = None,
    *,
    may_create: bool = False,
    may_serve: bool = True,
    timeout: float = _REQUEST_TIMEOUT,
) -> Iterator[Client]:
    """A client until the block ends. Print after it: other commands may wait for the lock.

    `config`: the configuration file, whose `database` is used where no gateway runs.
    `may_create`: creates a missing state directory. `may_serve`: serves the API itself where no
    gateway runs, instead of raising GatewayUnreachable. `timeout`: seconds for each request.
    """
    with ExitStack() as stack:
        if not may_create and not state_dir.is_dir():
            if not may_serve or database_server(config) is None:
                raise StateDirMissing(
                    f"There is no state directory {state_dir.absolute()}. Choose one with "
                    "--state-dir or --config."
                )
            # No replica was here, but its database is elsewhere.
            state_dir = Path(stack.enter_context(TemporaryDirectory(prefix="gateway-")))
        runner = stack.enter_context(asyncio.Runner())
        client = Client(runner, state_dir, config, may_serve, timeout)
        try:
            runner.run(client.open())
            yield client
        finally:
            runner.run(client.close())


def quote_path(text: str) -> str:
    """Quotes one segment of a path."""
    return quote(text, safe="")


class Client:
    """Synchronous. Paths are below `/admin/api`. Raises CommandRefused with the API's message, and
    GatewayUnreachable."""

    def __init__(
        self,
        runner: asyncio.Runner,
        state_dir: Path,
        config: Path | None,
        may_serve: bool,
        timeout: float,
    ) -> None:
        self.is_standalone = False
        """Whether no gateway runs, so that the command serves the API itself."""
        self._runner = runner
        self._state_dir = state_dir
        self._config = config
        self._may_serve = may_serve
        self._timeout = timeout
        self._stack = AsyncExitStack()
        self._lock_holder: int | None = None
        try:
            self._socket = socket_path(state_dir)
        except AdminSocketError as error:
            raise CommandRefused(str(error)) from None

    def request(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The JSON of the response; parameters that are None are left out."""
        params = {name: str(value) for name, value in query.items() if value is not None}
        return self._runner.run(self._request(method, path, body, params))

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")
    patch = partialmethod(request, "PATCH")
    delete = partialmethod(request, "DELETE")

    async def open(self) -> None:
        """Waits until the socket is served, by a gateway or by this command. Each process that
        holds the lock meanwhile has the whole timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CONNECT_TIMEOUT
        holder: int | None = -1
        while not (await self._is_served(deadline) or await self._serve()):
            if self._lock_holder != holder:
                holder, deadline = self._lock_holder, loop.time() + _CONNECT_TIMEOUT
            if loop.time() > deadline:
                raise self._connect_timeout()
            await asyncio.sleep(_RETRY_INTERVAL)

    async def close(self) -> None:
        await self._stack.aclose()

    async def _request(self, method: str, path: str, body: Any, params: dict[str, str]) -> Any:
        """Retries after connection errors, except a POST that may have been executed."""
        for _ in range(_TRIES):
            try:
                return await self._send(method, path, body, params)
            except aiohttp.ClientConnectorError:
                pass
            except (aiohttp.ClientError, ConnectionError) as error:
                if method == "POST":
                    raise GatewayUnreachable(
                        "The gateway exited before it answered: check whether it made the change."
                    ) from error
            except TimeoutError:
                raise GatewayHangs(
                    f"The gateway did not answer within {self._timeout:g} s.",
                    read_holder(self._state_dir),
                ) from None
            await self.open()
        raise GatewayUnreachable("The gateway exited before it answered.")

    async def _send(
        self, method: str, path: str, body: Any = None, params: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else orjson.dumps(body)
        async with (
            aiohttp.ClientSession(
                # A new connection for each request: the gateway could close an idle one meanwhile.
                connector=aiohttp.UnixConnector(str(self._socket), force_close=True),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            ) as session,
            session.request(
                method, f"http://gateway{API_PATH}{path}", params=params, data=data
            ) as response,
        ):
            answer = await response.read()
        try:
            content: Any = orjson.loads(answer) if answer else None
            if response.status < 400:
                return content
            message, mistakes = content["error"]["message"], content["error"].get("mistakes", ())
        except (ValueError, LookupError, TypeError, AttributeError):
            raise CommandRefused(
                f"{self._socket} answers with status {response.status}, but not as a gateway does."
            ) from None
        raise CommandRefused(str(message), mistakes)

    async def _is_served(self, deadline: float) -> bool:
        """Raises GatewayHangs if the socket is open, but there is no response."""
        try:
            async with asyncio.timeout_at(deadline):
                about = await self._send("GET", "")
        except TimeoutError:
            raise self._connect_timeout() from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, PermissionError):
                raise _wrong_owner(self._socket) from None
            return False
        except (aiohttp.ClientError, ConnectionError):
            return False  # it is shutting down, and will release the lock
        if (context := click.get_current_context(silent=True)) is not None:
            is_object = isinstance(about, dict)
            context.meta[RUNNING_RELEASE] = about.get("version") if is_object else about
            if is_object and "config" in about:
                context.meta[RUNNING_CONFIG] = about["config"]
        return True

    async def _serve(self) -> bool:
        """Serves the socket, unless another process holds the lock."""
        # Imported here: it is half of a command's start time, and not needed with a gateway.
        from gateway.admin.api.console import open_admin_app

        if not self._may_serve:
            raise GatewayUnreachable(f"No gateway runs on the state directory {self._state_dir}.")
        if self._state_dir.exists() and self._state_dir.stat().st_uid != os.geteuid():
            raise _wrong_owner(self._state_dir)  # new files would not belong to the gateway's user
        try:
            self._stack.enter_context(lock_state_dir(self._state_dir))
            place = database_server(self._config) or self._state_dir / DATABASE_NAME
            app = await self._stack.enter_async_context(open_admin_app(place, now_us))
            await self._stack.enter_async_context(serve_admin(app, self._state_dir))
        except StateLocked as error:
            self._lock_holder = error.pid
            return False
        except (StoreError, AdminSocketError, OSError) as error:
            raise CommandRefused(str(error)) from None
        self.is_standalone = True
        return True

    def _connect_timeout(self) -> GatewayHangs:
        pid = self._lock_holder or read_holder(self._state_dir)
        holder = f"process {pid}" if pid else "another process"
        return GatewayHangs(
            f"The state directory {self._state_dir} is in use by {holder}, but its admin socket "
            f"did not answer within {_CONNECT_TIMEOUT:g} s.",
            pid,
        )


def database_server(config: Path | None) -> DatabaseServer | None:
    """Raises CommandRefused if the configuration names one that cannot be used."""
    try:
        return find_database(config)
    except ConfigError as error:
        raise CommandRefused(str(error)) from None


def _wrong_owner(path: Path) -> CommandRefused:
    return CommandRefused(
        f"{describe_owner(path)}: run this command as the gateway's own user: "
        f"{command_of_owner(path)}"
    )
