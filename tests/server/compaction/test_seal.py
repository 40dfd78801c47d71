"""Sealed summaries."""

from __future__ import annotations

import pytest

from gateway.server.compaction.seal import Sealer, Summary

SEALER = Sealer(bytes(32))


@pytest.mark.parametrize("text", ["", "a", "Blåbær 🫐", "\ud800", "x" * 1_000_000])
@pytest.mark.parametrize("covers_all", [False, True])
def test_round_trip(text: str, covers_all: bool) -> None:
    sealed = SEALER.seal(Summary(text, covers_all))
    assert SEALER.is_own(sealed) and sealed.isascii()
    assert SEALER.open(sealed) == (text, covers_all)
    assert sealed == Sealer(bytes(32)).seal(Summary(text, covers_all))
    other = Sealer(bytes(31) + b"\1")
    assert not other.is_own(sealed) and other.open(sealed) is None


def test_only_the_installation_can_read_and_make_it() -> None:
    sealed = SEALER.seal(Summary("a secret that nobody sees"))
    assert "c2VjcmV0" not in sealed
    for at in range(sealed.rindex(".") + 1, len(sealed) - 2):
        other = "A" if sealed[at] != "A" else "B"
        assert SEALER.open(sealed[:at] + other + sealed[at + 1 :]) is None
    assert all(SEALER.open(sealed[:end]) is None for end in range(len(sealed) - 2))
    assert SEALER.open(sealed + "AAAA") is None


def test_what_is_no_seal() -> None:
    assert not any(map(SEALER.is_own, (None, 5, "", "gwc1.abc", "ZW5j")))
    prefix = SEALER.seal(Summary("")).rpartition(".")[0] + "."
    assert all(SEALER.open(prefix + text) is None for text in ("", "é", "====", "a"))
