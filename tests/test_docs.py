"""The pages keep step with the code and with each other; how they read is a person's business."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import errors
from gateway.config.load import parse_config
from gateway.store import schema

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def rows(kind: type[errors.GatewayError]) -> Iterator[type[errors.GatewayError]]:
    for child in kind.__subclasses__():
        yield child
        yield from rows(child)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    for page in (ROOT / "docs" / "adr").glob("[0-9]*.md"):
        assert f"({page.name})" in index


@pytest.mark.parametrize("row", list(rows(errors.GatewayError)), ids=lambda row: row.__name__)
def test_every_error_is_in_the_table(row: type[errors.GatewayError]) -> None:
    if row is errors.UpstreamRefusal:
        return  # the upstream's own status and words
    code = f"`{row.code}`" if row.code else "| none |"
    table = (ROOT / "docs" / "errors.md").read_text().splitlines()
    assert any(line.startswith(f"| {row.status}") and code in line for line in table)


def test_configuration_of_the_readme_is_valid() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert {channel.name for channel in parse_config(example).channels} == {
        "chat-main",
        "messages-main",
    }


def test_every_field_of_a_log_row_is_explained() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert [c.name for c in schema.requests.columns if f"`{c.name}`" not in page] == []
