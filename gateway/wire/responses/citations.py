"""Reads and writes the annotations of responses texts. It must not know where the text stands."""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData
from gateway.wire.fields import Payload


def parse_citation(annotation: Payload) -> Citation:
    return Citation(
        url=_of_type(annotation.get("url"), str),
        title=_of_type(annotation.get("title"), str),
        start=_of_type(annotation.get("start_index"), int),
        end=_of_type(annotation.get("end_index"), int),
        extra=ProviderData(Format.RESPONSES, annotation),
    )


def echo_citation(citation: Citation) -> Payload | None:
    """The annotation as this format once told it; None where another format did."""
    extra = citation.extra
    if extra is not None and extra.format is Format.RESPONSES:
        own: Payload = extra.data
        return own
    return render_citation(citation, citation.start or 0, citation.end or 0)


def render_citation(citation: Citation, start: int, end: int) -> Payload | None:
    """The annotation for a page of the web, over these characters of the text; None for sources
    of other kinds, which have no name here."""
    if citation.url is None:
        return None
    return {
        "type": "url_citation",
        "start_index": start,
        "end_index": end,
        "title": citation.title or "",
        "url": citation.url,
    }


def _of_type(value: Any, kind: type[Any]) -> Any:
    return value if type(value) is kind else None  # true is no offset
