"""Citations as chat annotates them, both ways. It must not know where the text stands."""

from __future__ import annotations

from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_str


def parse_citation(annotation: Payload) -> Citation:
    said = annotation.get("url_citation")
    if not isinstance(said, dict):
        return Citation(extra=ProviderData(Format.CHAT, annotation))
    return Citation(
        url=lenient_str(said.get("url")) or None,
        title=lenient_str(said.get("title")) or None,
        start=_integer_or_none(said.get("start_index")),
        end=_integer_or_none(said.get("end_index")),
    )


def render_citation(citation: Citation, start: int, end: int) -> Payload | None:
    """The annotation of a text that stands from `start` to `end` in the message's content: of all
    of it where the citation does not say of what. None where its source has no address."""
    if citation.url is None:
        own = citation.extra
        return own.data if own and own.format is Format.CHAT else None
    first = min(start + max(citation.start or 0, 0), end)
    last = end if citation.end is None else min(start + citation.end, end)
    cited = {
        "start_index": first,
        "end_index": max(first, last),
        "title": citation.title or "",
        "url": citation.url,
    }
    return {"type": "url_citation", "url_citation": cited}


def _integer_or_none(value: object) -> int | None:
    return value if type(value) is int else None
