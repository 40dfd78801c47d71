"""Reasoning signatures that travel through clients of another format."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Thinking
from gateway.core.target import Target
from gateway.wire.prompt.signatures import is_wrapped, signature_for, unwrap, wrap
from tests.wire.stream_cases import JSON

HOME = Target(model="m", origin="0a1b2c3d")
ELSEWHERE = Target(model="m", origin="ffffffff")
SIGNED = ProviderData(Format.MESSAGES, "EqQB+/=")

SIGNATURES = st.none() | st.builds(ProviderData, st.sampled_from(Format), JSON)


@given(SIGNATURES, st.text(), st.booleans(), st.text())
def test_wrapped_signatures_round_trip(
    signature: ProviderData | None, origin: str, redacted: bool, text: str
) -> None:
    packed = wrap(signature, origin, redacted=redacted)
    assert is_wrapped(packed)
    assert unwrap(packed, text) == Thinking(text, signature, redacted=redacted, origin=origin)


@given(SIGNATURES)
def test_wrapped_signatures_are_plain_text(signature: ProviderData | None) -> None:
    packed = wrap(signature, "0a1b2c3d")
    assert packed.isascii()
    assert packed.removeprefix("gw1.").replace("-", "").replace("_", "").isalnum()
    assert wrap(signature, "0a1b2c3d") == packed


@given(st.text() | st.text("gw1.-_=ABCx"))
def test_changed_signatures_are_read(text: str) -> None:
    assert isinstance(unwrap(text, "hm"), Thinking)


@given(SIGNATURES, st.data())
def test_damaged_signatures_do_not_raise(
    signature: ProviderData | None, data: st.DataObject
) -> None:
    packed = wrap(signature, "0a1b2c3d")
    at = data.draw(st.integers(0, len(packed) - 1))
    cut = data.draw(st.integers(at, len(packed)))
    assert isinstance(
        unwrap(packed[:at] + data.draw(st.text(max_size=3)) + packed[cut:], "hm"), Thinking
    )


@given(JSON)
def test_foreign_content_does_not_raise(content: object) -> None:
    packed = "gw1." + urlsafe_b64encode(orjson.dumps(content)).decode()
    thinking = unwrap(packed, "hm")
    assert signature_for(thinking, Format.MESSAGES, HOME) is None


def test_unreadable_signatures_have_no_origin() -> None:
    thinking = unwrap("gw1.damaged", "hm")
    assert thinking.text == "hm"
    for target in (HOME, ELSEWHERE, Target(model="m")):
        assert signature_for(thinking, Format.MESSAGES, target) is None
        assert thinking.origin != target.origin


@pytest.mark.parametrize(
    ("thinking", "target", "expected"),
    [
        (Thinking("hm", SIGNED, origin="0a1b2c3d"), HOME, SIGNED.data),
        (Thinking("hm", SIGNED, origin="0a1b2c3d"), ELSEWHERE, None),
        (Thinking("hm", SIGNED), ELSEWHERE, SIGNED.data),  # it never left its format
        (Thinking("hm", ProviderData(Format.RESPONSES, "x"), origin="0a1b2c3d"), HOME, None),
        (Thinking("hm"), HOME, None),
    ],
)
def test_signatures_return_only_to_their_origin(
    thinking: Thinking, target: Target, expected: str | None
) -> None:
    assert signature_for(thinking, Format.MESSAGES, target) == expected
