"""docs/faults.md is what the tables say, word for word."""

from __future__ import annotations

from tests.resilience.faults.client_faults import CLIENT_FAULTS
from tests.resilience.faults.generate_docs import PAGE, page
from tests.resilience.faults.upstream_faults import FAULTS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), (
        "python -m tests.resilience.faults.generate_docs writes it anew"
    )


def test_row_names_are_unique() -> None:
    for table in (FAULTS, CLIENT_FAULTS):
        names = [(row.what, row.mode) for row in table]
        assert len(names) == len(set(names))
