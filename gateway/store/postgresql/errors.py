"""What the errors of a PostgreSQL server mean, and what to do about them; never with a secret."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gateway.config.cluster import DatabaseServer
from gateway.store.errors import ServerUnavailable

_UNAVAILABLE: Final = ("08", "57P", "53", "25006", "25P03", "55P03")
"""Beginnings of SQLSTATE: the connection, a stop of the server, too few resources, a standby, a
transaction that took too long, a lock that was not free in time."""

_CANCELLED: Final = "57014"
_REASONS: Final = {
    "57014": "it does not answer in time",
    "55P03": "another transaction holds what is to be changed",
    "57P03": "it is starting or stopping",
    "53300": "it has no free connection",
}

_REMEDIES: Final = {
    "28P01": 'the password of the user "{user}" is wrong or missing: set database.password,'
    " or $PGPASSWORD or ~/.pgpass for a URL of gateway db copy",
    "28000": 'the user "{user}" is not accepted ({cause}): see pg_hba.conf of the server',
    "3D000": 'there is no database "{name}": createdb -E UTF8 -T template0 {name}',
    "53300": "the server has no free connection: raise its max_connections, or lower"
    " database.connections of the replicas",
    "57P03": "the server is starting or stopping: try again in a moment",
    "42501": '{cause}: make the user "{user}" the owner of the database and of what is in it',
    "25006": "it is read-only, such as a standby: name the primary server",
}


def sqlstate_of(error: BaseException | None) -> str:
    """The server's code of an error (https://www.postgresql.org/docs/current/errcodes-appendix.html);
    "" for errors of others."""
    if isinstance(error, DBAPIError):
        error = error.orig
    return getattr(error, "sqlstate", None) or ""


def is_cancelled(error: BaseException) -> bool:
    """Whether the server gave a statement up, such as after its timeout."""
    return sqlstate_of(error) == _CANCELLED


def is_data_error(error: BaseException) -> bool:
    """Whether a value is the cause: the server refuses it, or the driver cannot send it."""
    return sqlstate_of(error).startswith(("22", "23")) or _is_unsendable(error)


def is_unavailable(error: BaseException) -> bool:
    """Whether the server or the connection is the cause, not the statement."""
    if isinstance(error, OSError | PoolTimeout):  # TimeoutError is an OSError
        return True
    if state := sqlstate_of(error):
        return state.startswith(_UNAVAILABLE) or state == _CANCELLED
    # The driver's own errors, such as of a closed connection, have no code.
    is_own = isinstance(error, InterfaceError) and not _is_unsendable(error)
    return isinstance(error, DBAPIError) and (error.connection_invalidated or is_own)


def is_temporary(error: BaseException) -> bool:
    """Whether trying again later can succeed as it is: the server is away, starting or stopping, a
    standby, or out of connections. A certificate or a file does not mend itself."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, ServerUnavailable):
        return True
    is_local = isinstance(cause, ssl.SSLError | FileNotFoundError | PermissionError)
    return is_unavailable(error) and not is_local and "rejected SSL" not in str(cause)


def reason_of(error: BaseException) -> str:
    """Describes the error in short, without the server's address: also for readers who may not know
    it."""
    state = sqlstate_of(error)
    if state in _REASONS:
        return _REASONS[state]
    if state:
        lost = state.startswith(("08", "57P"))
        return "the connection was lost" if lost else _first_line(error)
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, OSError | PoolTimeout):
        return _network_reason(cause)
    return "the connection was lost" if is_unavailable(error) else _first_line(error)


def _network_reason(error: OSError | PoolTimeout) -> str:
    match error:
        case ConnectionRefusedError():
            return "the connection was refused"
        case socket.gaierror():
            return "its host is unknown"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message}"
        case PoolTimeout():
            return "all connections to it are in use"
        case TimeoutError():
            return "it does not answer in time"
        case OSError() if "rejected SSL" in str(error):
            return "it does not offer TLS"
        case OSError():
            return error.strerror or "the connection was lost"


def opening_error(error: BaseException, server: DatabaseServer) -> str:
    """Tells the operator which database it is, what is wrong with it, what to do."""
    address = server.address
    cause = error.orig if isinstance(error, DBAPIError) else error
    remedy = _REMEDIES.get(sqlstate_of(error))
    if remedy is not None:
        fields = {"user": address.user, "name": address.name, "cause": _first_line(error)}
        reason = remedy.format(**fields)
    elif isinstance(cause, ssl.SSLError) or "rejected SSL" in str(cause):
        reason = f"{reason_of(error)}; see database.tls"
    else:
        reason = reason_of(error)
    return f'the database "{address.name}" on {address.host}:{address.port}: {reason}'


def _is_unsendable(error: BaseException) -> bool:
    """Tells whether a value could not be sent, such as a number of more than 64 bits."""
    return isinstance(error, InterfaceError) and isinstance(
        getattr(error.orig, "__cause__", None), ValueError
    )


def _first_line(error: BaseException) -> str:
    """The server's own words."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return (str(cause).splitlines() or [""])[0].rpartition(">: ")[2]
