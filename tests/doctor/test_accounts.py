"""Findings about the accounts of a gateway that runs."""

from __future__ import annotations

from gateway.doctor.accounts import check_states

STATE = {"channel": "main", "account": "a", "model": "m", "state": "healthy"}
FINE = {"reason": None, "error": None, "refuses": []}


def test_what_an_upstream_refuses_is_a_line_for_the_file() -> None:
    (finding,) = check_states([STATE | FINE])
    assert finding.remedy is None
    refused = {"refuses": ["context_management", "beta:x-2025-01-01"]}
    _, finding = check_states([STATE | FINE | refused])
    assert "refuses context_management, beta:x-2025-01-01 with m" in str(finding)
    line = 'traits: {refuses: ["context_management", "beta:x-2025-01-01"]}'
    assert finding.remedy == f"in the channel: {line}"
