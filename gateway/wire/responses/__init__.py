"""The responses format. This room must not know the other formats or which lane it serves."""

from gateway.wire.responses.codec import CODEC, ResponsesCodec

__all__ = ["CODEC", "ResponsesCodec"]
