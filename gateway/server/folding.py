"""A stream that nobody asked for becomes the whole reply that the client did ask for.

Some upstreams only stream. It must not know which, nor any format: the codecs do.
"""

from __future__ import annotations

from gateway.server.attempt import Asked, WholeReply
from gateway.server.spoken import as_body
from gateway.upstream.response import AttemptFailed
from gateway.wire.codec import Decoder, Stamp
from gateway.wire.collector import Collector
from gateway.wire.restore import Restorer
from gateway.wire.translated import TranslatedTranslator


class Folding:
    """One such stream: `receive` its bytes until `over`, or until they end and `close` it."""

    __slots__ = ("_asked", "_collector", "_stamp", "_translator")

    def __init__(
        self, asked: Asked, stamp: Stamp, decoder: Decoder, restorer: Restorer | None = None
    ) -> None:
        self._asked = asked
        self._stamp = stamp
        self._collector = Collector()
        self._translator = TranslatedTranslator(
            decoder, self._collector, restorer, input_tokens=stamp.input_tokens
        )

    @property
    def over(self) -> bool:
        return self._translator.end is not None or self._translator.failure is not None

    def receive(self, chunk: bytes) -> None:
        self._translator.receive(chunk)

    def close(self) -> None:
        self._translator.close()

    def whole(self) -> WholeReply:
        """Raises `AttemptFailed` where the stream came to no good end."""
        translator = self._translator
        if translator.failure is not None:
            raise AttemptFailed(translator.failure)
        return as_body(self._asked, self._stamp, self._collector.reply, translator.usage)
