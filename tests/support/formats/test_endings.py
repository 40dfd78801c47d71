"""What is a proper end of a stream, and what an error."""

from __future__ import annotations

import pytest

from tests.support.formats.endings import error_at_end, is_complete

TEXT = b'data: {"choices":[]}\n\n'
ENDS = {
    "chat": b"data: [DONE]\n\n",
    "messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "responses": b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
}
ERRORS = {
    "chat": b'data: {"error":{"message":"no"}}\n\n',
    "messages": b'event: error\ndata: {"type":"error","error":{"message":"no"}}\n\n',
    "responses": b'event: response.failed\ndata: {"response":{"status":"failed","error":'
    b'{"message":"no"}}}\n\n',
}


@pytest.mark.parametrize("format", ENDS)
def test_the_end_of_a_stream_tells_what_became_of_it(format: str) -> None:
    whole, failed = TEXT + ENDS[format], TEXT + ERRORS[format]
    assert (is_complete(format, whole), error_at_end(format, whole)) == (True, None)
    assert (is_complete(format, failed), error_at_end(format, failed)) == (False, {"message": "no"})
    for cut in (b"", TEXT, whole[:-1], failed[:-1], TEXT + b": ping\n\n"):
        assert (is_complete(format, cut), error_at_end(format, cut)) == (False, None)
    for other in ENDS.keys() - {format}:
        assert not is_complete(format, ENDS[other])
        assert error_at_end(format, ERRORS[other]) is None
