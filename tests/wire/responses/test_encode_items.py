"""Events are numbered without gaps, whoever writes them."""

from __future__ import annotations

from gateway.wire.responses.encode_items import DeltaWriter, EventWriter


def test_events_and_lines_share_their_numbers() -> None:
    pen = EventWriter()
    line = DeltaWriter(pen, "output_text.delta", {"item_id": "msg_1"}, {"logprobs": []})
    bare = DeltaWriter(pen, "refusal.delta", {"item_id": "msg_1"})
    assert pen.write("created", {"response": {}}) == (
        b"event: response.created\n"
        b'data: {"type":"response.created","sequence_number":0,"response":{}}\n\n'
    )
    assert line.write('a"\n') == (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1",'
        b'"delta":"a\\"\\n","logprobs":[]}\n\n'
    )
    assert bare.write("b") == (
        b"event: response.refusal.delta\n"
        b'data: {"type":"response.refusal.delta","sequence_number":2,"item_id":"msg_1",'
        b'"delta":"b"}\n\n'
    )
    assert pen.sequence == 3
