"""Errors of the shared state, with messages for the operator; clients never see them."""

from __future__ import annotations

from gateway.store.errors import ServerUnavailable, StoreError


class SharedError(StoreError):
    """The server cannot be used. The message says what is wrong and what to do about it."""


class SharedLost(SharedError, ServerUnavailable):
    """The server cannot be reached now, or did not answer in time."""


class CommandFailed(SharedError):
    """The server's error to one command; the message is its own text."""
