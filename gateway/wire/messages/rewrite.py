"""The native lane of messages: edits single frames in place. It must not know what they mean for
the reply: the decoder watches that.
"""

from __future__ import annotations

from gateway.core.prompt import Prompt
from gateway.errors import GatewayError
from gateway.wire.fields import Payload
from gateway.wire.messages.errors import error_frame
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.sse import Frame, replace_data, write_frame

_BOM = b"\xef\xbb\xbf"
_PING = write_frame(b"ping", b'{"type":"ping"}')


class MessagesRewriter:
    """Client libraries skip frames without an `event:` line, so those get one."""

    __slots__ = ("_model_name",)

    def __init__(self, prompt: Prompt) -> None:
        self._model_name = ModelNamePatcher(prompt.model, parent="message")

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        raw = frame.raw
        if data is None or (frame.name and frame.name != b"message_start"):
            return raw
        if isinstance(message := data.get("message"), dict) and frame.data:
            payload = self._model_name.patch(frame.data, message.get("model"))
            if payload is not frame.data:
                raw = replace_data(frame, payload)
        return raw if frame.name else _with_event_line(raw, data)

    def skip(self, frames: bytes) -> None:
        """Nothing is remembered of them."""

    def ping(self) -> bytes:
        return _PING

    def encode_error(self, error: GatewayError) -> bytes:
        return error_frame(error)


def _with_event_line(raw: bytes, data: Payload) -> bytes:
    kind = data.get("type")
    if not (isinstance(kind, str) and kind.isidentifier()):
        if "error" not in data:
            return raw
        kind = "error"
    return b"event: %b\n%b" % (kind.encode(), raw.removeprefix(_BOM))
