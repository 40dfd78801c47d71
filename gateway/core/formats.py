"""Wire formats, endpoints that pass through, model families and lanes."""

from __future__ import annotations

from gateway.core.value import FastStrEnum


class Format(FastStrEnum):
    """A wire format of clients and channels (Specification, "What the service does")."""

    CHAT = "chat"
    MESSAGES = "messages"
    RESPONSES = "responses"


class Endpoint(FastStrEnum):
    """An endpoint, or those below one path, whose requests and replies pass through unchanged."""

    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    MODERATIONS = "moderations"
    AUDIO = "audio"
    IMAGES = "images"


class Family(FastStrEnum):
    """A property of a model (Specification, "Model catalog")."""

    ALPHA = "alpha"
    BETA = "beta"


class Lane(FastStrEnum):
    """NATIVE if client and channel have the same format, else TRANSLATED."""

    NATIVE = "native"
    TRANSLATED = "translated"
