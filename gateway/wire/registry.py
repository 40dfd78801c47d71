"""The table of formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.formats import Format
from gateway.wire import chat, messages, responses
from gateway.wire.codec import Codec

CODECS: Final[Mapping[Format, Codec]] = {
    codec.format: codec for codec in (chat.CODEC, messages.CODEC, responses.CODEC)
}


def error_format(path: str) -> Format | None:
    """The format of errors and limits on a path; None where it has none."""
    for codec in CODECS.values():
        if path.startswith(codec.error_paths):
            return codec.format
    return None
