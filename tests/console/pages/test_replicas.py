"""The page of replicas, of a gateway that has none. tests/fleet/test_start_seen.py has others."""

from __future__ import annotations

import pytest

from tests.console.visitor import Visitor


@pytest.mark.sqlite
async def test_a_single_process_says_so(visitor: Visitor) -> None:
    page = await visitor.get("/console/replicas")
    assert page.status == 200
    assert "single process" in page.text
    assert "/console/replicas" not in (await visitor.get("/console")).html
