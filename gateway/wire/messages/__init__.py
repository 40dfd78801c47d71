"""The messages format."""

from gateway.wire.messages.codec import CODEC
from gateway.wire.messages.parse_prompt import parse_count_tokens

__all__ = ["CODEC", "parse_count_tokens"]
