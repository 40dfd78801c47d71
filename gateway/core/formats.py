"""The closed sets of names: wire formats, model families, lanes.

This room must not know what any of them looks like on the wire.
"""

from __future__ import annotations

from gateway.core.value import FastStrEnum


class Format(FastStrEnum):
    """A wire format that clients and channels speak (Specification, "What the service does")."""

    CHAT = "chat"
    MESSAGES = "messages"
    RESPONSES = "responses"


class Family(FastStrEnum):
    """A property of a model (Specification, "Model catalog")."""

    ALPHA = "alpha"
    BETA = "beta"


class Lane(FastStrEnum):
    """Native where client and channel share a format, translated where they do not."""

    NATIVE = "native"
    TRANSLATED = "translated"
