"""The chat-completions format."""

from gateway.wire.chat.codec import CODEC

__all__ = ["CODEC"]
