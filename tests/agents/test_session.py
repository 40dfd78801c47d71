"""Real agents go on: 30 turns with tools, three compactions by their own triggers, an account that
is refused for good and a restart of the gateway, with upstreams of each format."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import orjson
import pytest

from gateway.core.formats import Format
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.full,
    pytest.mark.processes,
    pytest.mark.sqlite,
    pytest.mark.slow("a real agent runs 30 commands"),
    pytest.mark.timeout(400),
]


AGENTS = ("codex", "codex-provider", "claude-code")
CASES = [pytest.param(*case, (), id="-".join(case)) for case in product(AGENTS, Format)]
CASES.append(pytest.param("codex", Format.RESPONSES, ("compacts",), id="codex-compacting"))
"""The last upstream compacts conversations itself, for all accounts of its organization."""
NATIVE = {
    ("claude-code", Format.MESSAGES): 33,
    ("codex", Format.RESPONSES): 5,
    ("codex-provider", Format.RESPONSES): 5,
}
"""Requests at least whose prefix is compared, where the formats are the same."""


@pytest.mark.parametrize(("agent", "upstream_format", "options"), CASES)
def test_long_session(
    tmp_path: Path,
    clients: Path,
    isolated: list[str],
    agent: str,
    upstream_format: Format,
    options: tuple[str, ...],
) -> None:
    command = [sys.executable, "-m", "tests.agents.session", agent, upstream_format.value]
    done = subprocess.run(
        [*isolated, *command, tmp_path, clients, *options],
        cwd=ROOT,
        capture_output=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr.decode()
    result = orjson.loads(done.stdout)
    print(done.stdout.decode())  # the figures
    assert result["errors"] == []
    assert result["failed_rows"] == []
    assert result["forgotten"] == []
    assert result["changed"] == []
    # A compacted conversation is native only where the upstream compacts, or the agent itself.
    native = NATIVE.get((agent, upstream_format), 0)
    assert result["compared"] >= (30 if options else native)
    assert result["calls"] == 30
    assert result["turns"] == result["texts"] == 33
    assert result["compactions"] >= 3
    assert result["refused"] and result["restarts"] == 1
    # Three prompts, what 30 commands have shown, and what the model has said in 33 turns.
    assert result["facts"] == 3 + 30 + 33
