"""The messages format. This room must not know the other formats or which lane it serves."""

from gateway.wire.messages.codec import CODEC, MessagesCodec

__all__ = ["CODEC", "MessagesCodec"]
