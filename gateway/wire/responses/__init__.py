"""The responses format."""

from gateway.wire.responses.codec import CODEC

__all__ = ["CODEC"]
