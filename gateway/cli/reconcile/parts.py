"""The lines of an export by what they belong to: a request, or a model's span of time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from gateway.cli.reconcile.exports import Line

Part = tuple[str, int | str]
"""A model, and the start of a span (Unix µs) or the id of a request with several lines."""


class Parts:
    """`single` has the only line of a request by its id, None once a row had it; `shared` the lines
    of what may have several."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.single: dict[str, Line | None] = {}
        self.shared: dict[Part, list[Line]] = defaultdict(list)
        self._models: dict[str, str] = {}
        for line in lines:
            if line.id is None:
                self.shared[line.model, line.start].append(line)
            elif line.id in self._models or line.id in self.single:
                if (first := self.single.pop(line.id, None)) is not None:
                    self.shared[first.model, line.id].append(first)
                self.shared[line.model, line.id].append(line)
                self._models[line.id] = line.model
            else:
                self.single[line.id] = line
        self._spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for (model, start), of_span in self.shared.items():
            if isinstance(start, int):
                self._spans[model].append((start, max(line.end for line in of_span)))
        for spans in self._spans.values():
            spans.sort()

    @property
    def has_ids(self) -> bool:
        return bool(self.single or self._models)

    def shared_part(self, model: str, id: str | None, started: int) -> Part | None:
        """Returns the one in which a request is that has no line of its own."""
        if id is not None and id in self._models:
            return self._models[id], id
        spans = self._spans.get(model, [])
        index = bisect_right(spans, started, key=lambda span: span[0]) - 1
        return (model, spans[index][0]) if index >= 0 and started < spans[index][1] else None
