"""The recorder's statements for SQLite: written with Core, compiled once, sent to the driver.

Going through Core for every batch would cost more than the rows do, and so would going through the
engine: in a batch of one exchange, half of the processor time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Insert,
    Select,
    Table,
    Update,
    column,
    insert,
    literal_column,
    select,
    table,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.types import TypeEngine

from gateway.store.log.batch import MAX_BATCH
from gateway.store.log.expressions import IS_RUNNING, add_to_row, add_to_token
from gateway.store.measures import MEASURES, TRAFFIC_KEY
from gateway.store.records import (
    INTENT_FIELDS,
    OUTCOME_FIELDS,
    AttemptRow,
    HourDelta,
    RequestRow,
    SearchRow,
    TokenDelta,
)
from gateway.store.schema import attempts, requests, searches, tokens, traffic, usage_hours

Terms = Mapping[str, ColumnElement[Any]]
Types = Mapping[str, TypeEngine[Any]]
Fields = tuple[str, ...]

_BOOT: Final = "{boot}"
_GIVEN: Final = "given"


def _insert_into(into: Insert, terms: Terms, **constants: ColumnElement[Any]) -> Insert:
    """Insert each of the terms, and of the constants, into the column of its name."""
    values = {**terms, **constants}
    first = next(iter(terms.values()))
    rows = select(*values.values()).where(first.is_distinct_from(literal_column("''")))
    return into.from_select(list(values), rows, include_defaults=False)


class Statement:
    """One statement, for rows of one kind, which runs once for up to 64 of them.

    The driver releases the interpreter lock for every run. Under load the event loop takes it, so
    a batch that is written row by row switches between two threads a hundred times.

    The driver keeps statements prepared by their text. So there are texts for a few numbers of
    rows only, and the last rows of a run may be padding: rows of empty texts, which insertions
    leave out and which are no key of any row.
    """

    SIZES: Final = (1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64)

    def __init__(
        self, build: Callable[[Terms], Insert | Update], types: Types, fields: Fields
    ) -> None:
        """`fields` are those of a row, in their order; the statement takes those of `types`, as
        columns of a table."""
        terms = table(_GIVEN, *(column(f"p_{name}", type_) for name, type_ in types.items())).c
        sql = str(_compile(build(dict(zip(types, terms, strict=True)))))
        names = ", ".join(term.name for term in terms)
        row = f"({', '.join('?' * len(types))})"
        self._texts = [
            f"WITH {_GIVEN} ({names}) AS (VALUES {', '.join([row] * size)}) {sql}"
            for size in self.SIZES
        ]
        self._padding = ("",) * len(types)
        self._arrange: Callable[[Sequence[Any]], Any] = itemgetter(*map(fields.index, types))

    def run(self, cursor: DBAPICursor, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write the rows; without any, do nothing."""
        for start in range(0, len(rows), self.SIZES[-1]):
            part = rows[start : start + self.SIZES[-1]]
            fitting = bisect_left(self.SIZES, len(part))
            padding = repeat(self._padding, self.SIZES[fitting] - len(part))
            values = chain.from_iterable(chain(map(self._arrange, part), padding))
            cursor.execute(self._texts[fitting], tuple(values))

    def for_boot(self, boot_id: str) -> Statement:
        statement = copy(self)
        statement._texts = [text.replace(_BOOT, boot_id) for text in self._texts]
        return statement


def _compile(executable: Insert | Update | Select[Any]) -> Any:
    return executable.compile(dialect=sqlite.dialect(), compile_kwargs={"render_postcompile": True})


class Lookup:
    """The state of each row that exists, by id."""

    def __init__(self) -> None:
        query = select(requests.c.id, requests.c.state)
        self._texts = [
            (size, str(_compile(query.where(requests.c.id.in_([""] * size)))))
            for size in (1, 20, MAX_BATCH)
        ]

    def run(self, cursor: DBAPICursor, ids: Sequence[str]) -> dict[str, str]:
        """Looks up at most `MAX_BATCH` ids. A few fixed texts: the driver keeps them prepared."""
        if not ids:
            return {}
        size, sql = next(fitting for fitting in self._texts if fitting[0] >= len(ids))
        cursor.execute(sql, (*ids, *[ids[0]] * (size - len(ids))))
        return {id: state for id, state in cursor.fetchall()}


class Statements:
    """The statements of the recorder, for one boot."""

    def __init__(self, boot_id: str) -> None:
        compiled = _compiled()
        self.boot_id = boot_id
        self.states = compiled.states
        self.insert_intent = compiled.insert_intent.for_boot(boot_id)
        self.insert_complete = compiled.insert_complete.for_boot(boot_id)
        self.update_settled = compiled.update_settled
        self.insert_attempt = compiled.insert_attempt
        self.insert_search = compiled.insert_search
        self.add_hour = compiled.add_hour
        self.add_to_token = compiled.add_to_token
        self.add_traffic = compiled.add_traffic


class _Compiled:
    """The statements with `_BOOT` in place of a boot's id: they are compiled once in a process."""

    def __init__(self) -> None:
        row = RequestRow._fields
        boot: ColumnElement[str] = literal_column(f"'{_BOOT}'")
        self.states = Lookup()
        self.insert_intent = _statement(
            lambda terms: _insert_into(
                insert(requests), terms, state=IS_RUNNING.right, boot_id=boot
            ),
            requests,
            row,
            INTENT_FIELDS,
        )
        self.insert_complete = _statement(
            lambda terms: _insert_into(insert(requests), terms, boot_id=boot),
            requests,
            row,
            tuple(name for name in row if name != "boot_id"),
        )
        self.update_settled = _statement(_update_settled, requests, row, ("id", *OUTCOME_FIELDS))
        self.insert_attempt = _statement(
            lambda terms: _insert_into(insert(attempts), terms),
            attempts,
            ("request_id", "number", *AttemptRow._fields),
        )
        self.insert_search = _statement(
            lambda terms: _insert_into(insert(searches), terms),
            searches,
            ("request_id", "number", *SearchRow._fields),
        )
        self.add_hour = _statement(
            lambda terms: _insert_into(add_to_row(sqlite.insert(usage_hours)), terms),
            usage_hours,
            HourDelta._fields,
        )
        self.add_traffic = _statement(
            lambda terms: _insert_into(add_to_row(sqlite.insert(traffic)), terms),
            traffic,
            (*TRAFFIC_KEY, *MEASURES),
        )
        fields = TokenDelta._fields
        types = dict.fromkeys(fields, BigInteger()) | {"token_id": tokens.c.id.type}
        self.add_to_token = Statement(add_to_token, types, fields)


@cache
def _compiled() -> _Compiled:
    return _Compiled()


def _statement(
    build: Callable[[Terms], Insert | Update],
    into: Table,
    fields: Fields,
    names: Fields | None = None,
) -> Statement:
    return Statement(build, {name: into.c[name].type for name in names or fields}, fields)


def _update_settled(terms: Terms) -> Update:
    return (
        update(requests)
        .where(requests.c.id == terms["id"], IS_RUNNING)
        .values({name: terms[name] for name in OUTCOME_FIELDS})
    )
