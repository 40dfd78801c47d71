"""The one table of formats. It must not know what any of them looks like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.formats import Format
from gateway.wire import chat, messages, responses
from gateway.wire.codec import Codec

CODECS: Final[Mapping[Format, Codec]] = {
    codec.format: codec for codec in (chat.CODEC, messages.CODEC, responses.CODEC)
}
