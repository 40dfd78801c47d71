"""Examples of the documentation, as they are run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.paths import ROOT

PAGE_ADDRESS = "http://127.0.0.1:8080"
"""In all examples."""


def snippets(section: str, language: str) -> Iterator[str]:
    """The code blocks of a section of docs/clients.md, in one language."""
    page = (ROOT / "docs" / "clients.md").read_text()
    (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    yield from re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def snippet(section: str, language: str, address: str, index: int = 0) -> str:
    """One of them, for a gateway at `address`."""
    return list(snippets(section, language))[index].replace(PAGE_ADDRESS, address)
