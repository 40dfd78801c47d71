"""A client of the admin API, for commands.

Commands use HTTP over the admin socket of the state directory. Where no gateway runs, the command
takes the directory's lock and serves the API itself while it needs it. So every operation is
implemented once, and concurrent commands are safe.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import click
import orjson

from gateway.admin import API_PATH
from gateway.admin.socket_path import AdminSocketError, socket_path
from gateway.cli import import_quickly
from gateway.cli.errors import (
    RUNNING_CONFIG,
    RUNNING_RELEASE,
    CommandRefused,
    GatewayHangs,
    GatewayUnreachable,
    StateDirMissing,
)
from gateway.config.document import ConfigError
from gateway.config.file_errors import command_of_owner, describe_owner
from gateway.store.errors import StateLocked, StoreError
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir, read_holder

if TYPE_CHECKING:
    from gateway.config.cluster import DatabaseServer

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
        client = Client(state_dir, config, may_serve, timeout)
        stack.enter_context(client.stack)
        client.open()
        yield client


def quote_path(text: str) -> str:
    """Quotes one segment of a path."""
    return quote(text, safe="")


class Client:
    """Synchronous. Paths are below `/admin/api`. Raises CommandRefused with the API's message, and
    GatewayUnreachable."""

    def __init__(
        self, state_dir: Path, config: Path | None, may_serve: bool, timeout: float
    ) -> None:
        self.is_standalone = False
        """Whether no gateway runs, so that the command serves the API itself."""
        self.stack = ExitStack()
        self._state_dir = state_dir
        self._config = config
        self._may_serve = may_serve
        self._timeout = timeout
        self._lock_holder: int | None = None
        try:
            self._socket = socket_path(state_dir)
        except AdminSocketError as error:
            raise CommandRefused(str(error)) from None

    def request(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The JSON of the response; parameters that are None are left out."""
        params = {name: str(value) for name, value in query.items() if value is not None}
        path = f"{path}?{urlencode(params)}" if params else path
        for _ in range(_TRIES):
            try:
                return self._send(method, path, body)
            except _NotServed:
                pass
            except TimeoutError:
                raise GatewayHangs(
                    f"The gateway did not answer within {self._timeout:g} s.",
                    read_holder(self._state_dir),
                ) from None
            except (HTTPException, OSError) as error:
                if method == "POST":  # which may have been executed
                    raise GatewayUnreachable(
                        "The gateway exited before it answered: check whether it made the change."
                    ) from error
            self.open()
        raise GatewayUnreachable("The gateway exited before it answered.")

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")
    patch = partialmethod(request, "PATCH")
    delete = partialmethod(request, "DELETE")

    def open(self) -> None:
        """Waits until the socket is served, by a gateway or by this command. Each process that
        holds the lock meanwhile has the whole timeout."""
        deadline = time.monotonic() + _CONNECT_TIMEOUT
        holder: int | None = -1
        while not (self._is_served(deadline) or self._serve()):
            if self._lock_holder != holder:
                holder, deadline = self._lock_holder, time.monotonic() + _CONNECT_TIMEOUT
            if time.monotonic() > deadline:
                raise self._connect_timeout()
            time.sleep(_RETRY_INTERVAL)

    def _send(self, method: str, path: str, body: Any, timeout: float | None = None) -> Any:
        """Raises _NotServed, TimeoutError, HTTPException, or OSError. A new connection for each
        request: the gateway could close an idle one meanwhile."""
        connection = _AdminConnection(self._socket, timeout or self._timeout)
        try:
            data = None if body is None else orjson.dumps(body)
            connection.request(method, f"{API_PATH}{path}", data)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        try:
            content: Any = orjson.loads(answer) if answer else None
            if response.status < 400:
                return content
            error = content["error"]
            message, mistakes, code = error["message"], error.get("mistakes", ()), error.get("code")
        except (ValueError, LookupError, TypeError, AttributeError):
            raise CommandRefused(
                f"{self._socket} answers with status {response.status}, but not as a gateway does."
            ) from None
        raise CommandRefused(str(message), mistakes, code)

    def _is_served(self, deadline: float) -> bool:
        """Raises GatewayHangs if the socket is open, but there is no response."""
        try:
            about = self._send("GET", "", None, max(deadline - time.monotonic(), _RETRY_INTERVAL))
        except TimeoutError:
            raise self._connect_timeout() from None
        except _NotServed as error:
            if isinstance(error.__cause__, PermissionError):
                raise _wrong_owner(self._socket) from None
            return False
        except (HTTPException, OSError):
            return False  # it is shutting down, and will release the lock
        if (context := click.get_current_context(silent=True)) is not None:
            is_object = isinstance(about, dict)
            context.meta[RUNNING_RELEASE] = about.get("version") if is_object else about
            if is_object and "config" in about:
                context.meta[RUNNING_CONFIG] = about["config"]
        return True

    def _serve(self) -> bool:
        """Serves the socket, unless another process holds the lock."""
        if not self._may_serve:
            raise GatewayUnreachable(f"No gateway runs on the state directory {self._state_dir}.")
        if self._state_dir.exists() and self._state_dir.stat().st_uid != os.geteuid():
            raise _wrong_owner(self._state_dir)  # new files would not belong to the gateway's user
        try:
            self.stack.enter_context(lock_state_dir(self._state_dir))
            # Imported here: it is most of a command's start time, and not needed with a gateway.
            standalone = import_quickly("gateway.cli.standalone")
            place = database_server(self._config) or self._state_dir / DATABASE_NAME
            self.stack.enter_context(standalone.serve_standalone(self._state_dir, place))
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


class _NotServed(Exception):
    """Nobody listens on the socket."""


class _AdminConnection(HTTPConnection):
    """A connection to an admin socket; `timeout` seconds for it and for each read."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("gateway", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(os.fspath(self._path))
        except TimeoutError:
            raise
        except OSError as error:
            raise _NotServed from error


def database_server(config: Path | None) -> DatabaseServer | None:
    """Raises CommandRefused if the configuration names one that cannot be used."""
    from gateway.config.load import find_database  # what commands with a gateway do not need

    try:
        return find_database(config)
    except ConfigError as error:
        raise CommandRefused(str(error)) from None


def _wrong_owner(path: Path) -> CommandRefused:
    return CommandRefused(
        f"{describe_owner(path)}: run this command as the gateway's own user: "
        f"{command_of_owner(path)}"
    )
