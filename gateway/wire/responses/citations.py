"""Reads the annotations of responses texts. It must not know where the text stands."""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from gateway.core.parts import Citation, Opaque
from gateway.wire.fields import Payload


def parse_citation(annotation: Payload) -> Citation:
    return Citation(
        url=_typed(annotation.get("url"), str),
        title=_typed(annotation.get("title"), str),
        start=_typed(annotation.get("start_index"), int),
        end=_typed(annotation.get("end_index"), int),
        extra=Opaque(Format.RESPONSES, annotation),
    )


def _typed(value: Any, kind: type[Any]) -> Any:
    return value if isinstance(value, kind) else None
