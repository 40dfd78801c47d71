"""A stream that nobody asked for becomes the whole reply that the client did ask for.

Some upstreams only stream. It must not know which, nor any format: the codecs do.
"""

from __future__ import annotations

from gateway.server.attempt import ClientRequest, CompleteReply
from gateway.server.spoken import render_body
from gateway.upstream.response import AttemptFailed
from gateway.wire.codec import Decoder, ReplyMetadata
from gateway.wire.collector import ReplyCollector
from gateway.wire.restore import EventTransformer
from gateway.wire.translated import CrossFormatTranslator


class StreamCollector:
    """One such stream: `receive` its bytes until `over`, or until they end and `close` it."""

    __slots__ = ("_request", "_collector", "_metadata", "_translator")

    def __init__(
        self, request: ClientRequest, metadata: ReplyMetadata, decoder: Decoder, restorer: EventTransformer | None = None
    ) -> None:
        self._request = request
        self._metadata = metadata
        self._collector = ReplyCollector()
        self._translator = CrossFormatTranslator(
            decoder, self._collector, restorer, input_tokens=metadata.input_tokens
        )

    @property
    def is_done(self) -> bool:
        return self._translator.end is not None or self._translator.failure is not None

    def receive(self, chunk: bytes) -> None:
        self._translator.receive(chunk)

    def close(self) -> None:
        self._translator.close()

    def reply(self) -> CompleteReply:
        """Raises `AttemptFailed` where the stream came to no good end."""
        translator = self._translator
        if translator.failure is not None:
            raise AttemptFailed(translator.failure)
        return render_body(self._request, self._metadata, self._collector.reply, translator.usage)
