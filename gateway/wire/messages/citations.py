"""Reads the citations of messages texts. It must not know where the text stands."""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData
from gateway.wire.fields import Payload


def parse_citation(citation: Payload) -> Citation:
    """The offsets here count characters of the cited document, not of the text that cites it, so
    they stay in the side pocket."""
    return Citation(
        url=_text_or_none(citation.get("url")),
        title=_text_or_none(citation.get("title")) or _text_or_none(citation.get("document_title")),
        cited_text=_text_or_none(citation.get("cited_text")),
        extra=ProviderData(Format.MESSAGES, citation),
    )


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
