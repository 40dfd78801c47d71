"""SQL that a process compiles once, not for each of its thousands of databases.

SQLAlchemy keeps compiled statements for each engine, which suits a gateway with one. A gateway's
start compiles some twenty, which takes a quarter of its time.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Dialect, Engine
from sqlalchemy.util import LRUCache

_SIZE: Final = 2000


class _OfAllEngines(LRUCache[Any, Any]):
    """Takes dialects of a kind as one: those of a process have the same options and servers."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_shared_key(*key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_shared_key(*key), value)


_compiled: Final = _OfAllEngines(_SIZE)


def pytest_configure() -> None:
    shared = property(lambda _engine: _compiled, lambda _engine, _cache: None)
    # Not a cache, but whatever an engine sets or asks for: its type is that of the attribute.
    Engine._compiled_cache = shared  # type: ignore[assignment]


def _shared_key(dialect: Dialect, *rest: Any) -> tuple[Any, ...]:
    return type(dialect), dialect.statement_compiler, *rest
