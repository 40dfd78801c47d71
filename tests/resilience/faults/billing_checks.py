"""What the rows of these tests must say of usage and money. Independent of any fault."""

from __future__ import annotations

from gateway.core.formats import Format
from gateway.store.records import RequestRow
from tests.resilience.faults.outcomes import Bill

_PROMPT = 12
"""Tokens of the prompt, as an upstream of messages tells them when it opens a reply."""
_SOURCES = {
    Bill.COUNTED: "upstream",
    Bill.ESTIMATED: "estimated",
    Bill.PROMPT: "estimated",
    Bill.NOTHING: "none",
}


def assert_billed(row: RequestRow, bill: Bill, *, broken_off: bool = False) -> None:
    """`broken_off`: what was heard of the reply is not all of it."""
    assert row.usage_source == _SOURCES[bill]
    used = (row.input_tokens, row.output_tokens)
    match bill:
        case Bill.NOTHING:
            assert used == (0, 0)
        case Bill.PROMPT:
            assert used == (row.expected_input_tokens, 0)
            assert row.cost_micro == row.expected_micro
        case Bill.ESTIMATED:
            result = broken_off and row.format == Format.MESSAGES
            assert row.input_tokens == (_PROMPT if result else row.expected_input_tokens)
            assert row.output_tokens > 0
        case Bill.COUNTED:
            assert row.input_tokens > 0
    assert (row.cost_micro > 0) is (bill is not Bill.NOTHING)
