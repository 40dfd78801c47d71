"""Translates the stream of an upstream whose format is the client's: frames are edited in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orjson import dumps, loads

from gateway.core.events import Event, Fail, Failure, FailureKind
from gateway.errors import GatewayError
from gateway.wire.codec import Decoder, Rewriter
from gateway.wire.json.fields import Payload, as_object, redact_json
from gateway.wire.stream.frame_template import count_json_characters
from gateway.wire.stream.sse import Frame, read_frame, replace_data
from gateway.wire.stream.translator import Translator, single_text_delta
from gateway.wire.upstream_errors import truncated_failure


class NativeTranslator(Translator):
    """Client and upstream share the format: frames are rewritten in place.

    Where the decoder fails, frames are still forwarded. If it then misses the end of a reply that
    had started and whose bytes ended after a complete frame, the outcome is unknown: neither `end`
    nor `failure` is set.
    """

    __slots__ = ("_error_forwarded", "_may_forward", "_redact", "_rewriter")

    def __init__(
        self,
        decoder: Decoder,
        rewriter: Rewriter,
        redact: Callable[[str], str],
        may_forward: Callable[[Failure], bool] = lambda _: True,
    ) -> None:
        """`redact` removes secrets from an upstream's error; `may_forward` decides whether its own
        error frame is sent."""
        super().__init__(decoder)
        self._redact = redact
        self._may_forward = may_forward
        self._error_forwarded = False
        self._rewriter = rewriter

    def abort(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        """Renders the failure, unless the upstream's own error frame was sent."""
        self._finished = True
        return b"" if self._error_forwarded and not withheld else self._rewriter.encode_error(error)

    def ping(self) -> bytes:
        return self._rewriter.ping()

    def _handle_frame(self, raw: bytes, out: list[bytes]) -> None:
        frame = read_frame(raw)
        data: Payload | None = None
        events: Sequence[Event] = ()
        try:
            if frame.data == b"[DONE]":
                events = self._decoder.done()
            elif frame.data:
                data = as_object(loads(frame.data), "data")
                events = self._decoder.decode(frame.name, data)
        except Exception as error:  # whatever an upstream sends is forwarded
            self._record_error(error)
        for event in events:
            self._observe(event)
        if self._finished:
            out.append(self._final_frame(frame, data))
            return
        edited = self._rewriter.rewrite(frame, data)
        if delta := single_text_delta(events):
            if self._rewriter.keeps_text:
                self._template.learn(raw, edited, delta[1])
        elif events:
            self._template.reset()
        out.append(edited)

    def _handle_run(
        self, frames: bytes, start: int, end: int, json_texts: list[bytes], out: list[bytes]
    ) -> bool:
        self.chars += count_json_characters(json_texts)
        run = self._template.apply(frames, start, end, json_texts)
        self._rewriter.skip(run)
        out.append(run)
        return True

    def _handle_chunk(self, frame: bytes, text: bytes) -> bytes | None:
        self.chars += len(text) if text.isascii() else len(text.decode("utf-8", "replace"))
        edited = self._template.apply(frame, 0, len(frame), [text])
        self._rewriter.skip(edited)
        return edited

    def _final_frame(self, frame: Frame, data: Payload | None) -> bytes:
        """Returns what to send of the frame that ended the reply with a failure. The rewriter,
        which has state, gets no frame that is not sent."""
        failure = self.failure
        if data is None or failure is None or not self.started:
            return b""
        if failure.kind is not FailureKind.RESPONSE or not self._may_forward(failure):
            return b""
        redacted = redact_json(data, self._redact)
        if redacted != data:
            frame = read_frame(replace_data(frame, dumps(redacted)))
        rewritten = self._rewriter.rewrite(frame, redacted)
        self._error_forwarded = bool(rewritten)
        return rewritten

    def _finish(self, *, clean_eof: bool) -> list[bytes]:
        try:
            events = self._decoder.close()
        except Exception as error:
            self._record_error(error)
            events = [Fail(truncated_failure(self.started), None)]
        for event in events:
            self._observe(event)
        truncated = self.failure is not None and self.failure.kind is FailureKind.TRUNCATED
        if truncated and self.decode_error and self.started and clean_eof:
            self.failure = None
        return []
