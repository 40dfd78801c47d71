"""Texts split into chunks."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def splits(draw: st.DrawFn, text: str) -> list[str]:
    at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
