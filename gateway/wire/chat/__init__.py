"""The chat-completions format. It must not know the other formats, nor the lane it serves."""

from gateway.wire.chat.codec import CODEC, ChatCodec

__all__ = ["CODEC", "ChatCodec"]
