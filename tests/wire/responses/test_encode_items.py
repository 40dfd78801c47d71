"""Sequence numbers have no gaps."""

from __future__ import annotations

from gateway.wire.responses.encode_items import DeltaWriter, EventWriter


def test_events_and_deltas_share_sequence_numbers() -> None:
    writer = EventWriter()
    deltas = DeltaWriter(writer, "output_text.delta", {"item_id": "msg_1"}, {"logprobs": []})
    refusal_deltas = DeltaWriter(writer, "refusal.delta", {"item_id": "msg_1"})
    assert writer.write("created", {"response": {}}) == (
        b"event: response.created\n"
        b'data: {"type":"response.created","sequence_number":0,"response":{}}\n\n'
    )
    assert deltas.write('a"\n') == (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1",'
        b'"delta":"a\\"\\n","logprobs":[]}\n\n'
    )
    assert refusal_deltas.write("b") == (
        b"event: response.refusal.delta\n"
        b'data: {"type":"response.refusal.delta","sequence_number":2,"item_id":"msg_1",'
        b'"delta":"b"}\n\n'
    )
    assert writer.sequence == 3
