"""Deltas join to their text, and ids are unique."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.simulator.stream_text import new_id, split_text, sse_frame


@pytest.mark.large
@given(st.text())
def test_pieces_join(text: str) -> None:
    assert "".join(split_text(text)) == text
    assert all(0 < len(piece) <= 13 for piece in split_text(text))


def test_frames() -> None:
    assert sse_frame({"a": "é"}) == 'data: {"a":"é"}\n\n'.encode()
    assert sse_frame({}, event="ping") == b"event: ping\ndata: {}\n\n"


def test_ids_are_fresh() -> None:
    assert len({new_id("call_") for _ in range(1000)}) == 1000
