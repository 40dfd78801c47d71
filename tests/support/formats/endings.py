"""How streams end, where nothing else is asked of them: they may be an upstream's own, passed on
as they are, and of a long one the last part is enough.
"""

from __future__ import annotations

from tests.support.formats.frames import DONE, Object, StrictFrame, strict_frames

_LAST = {"messages": "message_stop", "responses": "response.completed"}


def is_complete(format: str, raw: bytes) -> bool:
    """Whether a stream ends as the format's replies end."""
    name, data = _last_frame(raw)
    return (name, data) == (None, DONE) if format == "chat" else name == _LAST[format]


def error_at_end(format: str, raw: bytes) -> Object | None:
    """The format's own error if a stream ends with one."""
    name, data = _last_frame(raw)
    if not isinstance(data, dict):
        return None
    error: Object | None = None
    match format, name:
        case "chat", None:
            error = data.get("error")
        case "messages", "error":
            assert data["type"] == "error"
            error = data["error"]
        case "responses", "response.failed":
            assert data["response"]["status"] == "failed"
            error = data["response"]["error"]
    return error


def _last_frame(raw: bytes) -> StrictFrame:
    """Without data where the stream ends within a frame."""
    if not raw.endswith(b"\n\n"):
        return StrictFrame(None, None)
    (frame,) = strict_frames(raw[:-2].rpartition(b"\n\n")[2] + b"\n\n")
    return frame
