"""The recorder's statements: written with Core, compiled once, sent to the driver as they are.

Going through Core for every batch would cost more than the rows do, and so would going through the
engine: in a batch of one exchange, half of the processor time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from importlib import import_module
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final, Protocol

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Dialect,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    table,
    update,
)
from sqlalchemy.dialects import registry
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.types import TypeEngine

from gateway.store.records import (
    HOUR_US,
    INTENT_FIELDS,
    OUTCOME_FIELDS,
    TOKEN_TOTALS,
    AttemptRow,
    ExchangeState,
    HourDelta,
    RequestRow,
    SearchRow,
    TokenDelta,
)
from gateway.store.schema import attempts, requests, searches, tokens, usage_hours

MAX_LOOKUP: Final = 200

IS_RUNNING = requests.c.state == literal_column(f"'{ExchangeState.RUNNING}'")
"""A literal: with a parameter SQLite could not use the partial index."""

HOUR_KEY: Mapping[str, ColumnElement[Any]] = {
    # Literals: a server would take two parameters for two different expressions.
    "hour": requests.c.started_at // literal(HOUR_US, literal_execute=True),
    "token_id": requests.c.token_id,
    "group_name": requests.c.group_name,
    "model": func.coalesce(requests.c.catalog_model, literal("", literal_execute=True)),
}
"""The key of the hourly sums that a row of `requests` is counted in."""


def sum_of(column: ColumnElement[int]) -> ColumnElement[int]:
    """An integer, 0 of no rows: a server's own sums are decimal numbers, or null."""
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


class Parameters:
    """The fields of rows to be written, as terms of a statement: bound parameters of one row, or
    columns of a table of many."""

    TABLE: Final = "given"
    _PREFIX: Final = "p_"
    """Core reserves the bare names of a table's columns for parameters of its own."""

    def __init__(self, types: Types, *, many: bool) -> None:
        named = {field: (self._PREFIX + field, type_) for field, type_ in types.items()}
        self._many = many
        self.terms: Mapping[str, Any]
        if many:
            columns = (column(*field) for field in named.values())
            self.terms = dict(zip(named, table(self.TABLE, *columns).c, strict=True))
        else:
            self.terms = {
                field: bindparam(name, type_=type_, required=False)
                for field, (name, type_) in named.items()
            }

    @classmethod
    def field(cls, parameter: str) -> str:
        return parameter.removeprefix(cls._PREFIX)

    def insert_into(self, insertion: Insert, **constants: ColumnElement[Any]) -> Insert:
        """The insertion of each field, and of the constants, into the column of its name."""
        values = {**self.terms, **constants}
        if not self._many:
            return insertion.values(values)
        first = next(iter(self.terms.values()))
        rows = select(*values.values()).where(first.is_distinct_from(literal_column("''")))
        return insertion.from_select(list(values), rows, include_defaults=False)


class Statement(Protocol):
    """One statement, for rows of one kind."""

    def for_boot(self, boot_id: str) -> Statement: ...

    def run(self, cursor: DBAPICursor, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write the rows; without any, do nothing."""


Types = Mapping[str, TypeEngine[Any]]
Build = Callable[[Parameters], Insert | Update]
Fields = tuple[str, ...]

_BOOT: Final = "{boot}"


class SingleRowStatement:
    """Runs once for each row, on every dialect. `fields` are those of a row, in their order; the
    statement takes those of `types`."""

    def __init__(self, build: Build, types: Types, fields: Fields, dialect: Dialect) -> None:
        compiled = _compile(build(Parameters(types, many=False)), dialect)
        order = [fields.index(Parameters.field(name)) for name in compiled.positiontup]
        self._sql = str(compiled)
        self._arrange: Callable[[Sequence[Any]], Any] = itemgetter(*order)

    def run(self, cursor: DBAPICursor, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            cursor.executemany(self._sql, list(map(self._arrange, rows)))

    def for_boot(self, boot_id: str) -> Statement:
        statement = copy(self)
        statement._sql = self._sql.replace(_BOOT, boot_id)
        return statement


class MultiRowStatement:
    """Runs once for up to 64 rows, with SQLite.

    Its driver releases the interpreter lock for every run. Under load the event loop takes it, so
    a batch that is written row by row switches between two threads a hundred times.

    The driver keeps statements prepared by their text. So there are texts for a few numbers of
    rows only, and the last rows of a run may be padding: rows of empty texts, which insertions
    leave out and which are no key of any row. The arguments are as for SingleRowStatement.
    """

    SIZES: Final = (1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64)

    def __init__(self, build: Build, types: Types, fields: Fields, dialect: Dialect) -> None:
        parameters = Parameters(types, many=True)
        sql = str(_compile(build(parameters), dialect))
        names = ", ".join(term.name for term in parameters.terms.values())
        row = f"({', '.join('?' * len(types))})"
        self._texts = [
            f"WITH {Parameters.TABLE} ({names}) AS (VALUES {', '.join([row] * size)}) {sql}"
            for size in self.SIZES
        ]
        self._padding = ("",) * len(types)
        self._arrange: Callable[[Sequence[Any]], Any] = itemgetter(*map(fields.index, types))

    def run(self, cursor: DBAPICursor, rows: Sequence[tuple[Any, ...]]) -> None:
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


def _compile(executable: Insert | Update | Select[Any], dialect: Dialect) -> Any:
    return executable.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})


class Lookup:
    """The state of each row that exists, by id."""

    def __init__(self, dialect: Dialect) -> None:
        query = select(requests.c.id, requests.c.state)
        self._texts = [
            (size, str(_compile(query.where(requests.c.id.in_([""] * size)), dialect)))
            for size in (1, 20, MAX_LOOKUP)
        ]

    def run(self, cursor: DBAPICursor, ids: Sequence[str]) -> dict[str, str]:
        """At most `MAX_LOOKUP` ids. A few fixed texts: the driver keeps them prepared."""
        if not ids:
            return {}
        size, sql = next(fitting for fitting in self._texts if fitting[0] >= len(ids))
        cursor.execute(sql, (*ids, *[ids[0]] * (size - len(ids))))
        return {id: state for id, state in cursor.fetchall()}


class Statements:
    """All statements of the recorder, for one dialect and one boot."""

    def __init__(
        self,
        dialect: Dialect,
        boot_id: str,
        form: type[MultiRowStatement] | type[SingleRowStatement] | None = None,
    ) -> None:
        form = form or (MultiRowStatement if dialect.name == "sqlite" else SingleRowStatement)
        compiled = _compiled(form is MultiRowStatement, f"{dialect.name}.{dialect.driver}")
        self.states = compiled.states
        self.insert_intent = compiled.insert_intent.for_boot(boot_id)
        self.insert_complete = compiled.insert_complete.for_boot(boot_id)
        self.update_settled = compiled.update_settled
        self.insert_attempt = compiled.insert_attempt
        self.insert_search = compiled.insert_search
        self.add_hour = compiled.add_hour
        self.add_to_token = compiled.add_to_token


class _Compiled:
    """The statements with `_BOOT` in place of a boot's id: they are compiled once in a process."""

    def __init__(
        self, form: type[MultiRowStatement] | type[SingleRowStatement], dialect: Dialect
    ) -> None:
        def statement(
            build: Build, table: Table, fields: Fields, names: Fields | None = None
        ) -> Statement:
            types = {name: table.c[name].type for name in names or fields}
            return form(build, types, fields, dialect)

        row = RequestRow._fields
        boot: ColumnElement[str] = literal_column(f"'{_BOOT}'")
        self.states = Lookup(dialect)
        self.insert_intent = statement(
            lambda given: given.insert_into(insert(requests), state=IS_RUNNING.right, boot_id=boot),
            requests,
            row,
            INTENT_FIELDS,
        )
        self.insert_complete = statement(
            lambda given: given.insert_into(insert(requests), boot_id=boot),
            requests,
            row,
            tuple(name for name in row if name != "boot_id"),
        )
        self.update_settled = statement(_update_settled, requests, row, ("id", *OUTCOME_FIELDS))
        self.insert_attempt = statement(
            lambda given: given.insert_into(insert(attempts)),
            attempts,
            ("request_id", "number", *AttemptRow._fields),
        )
        self.insert_search = statement(
            lambda given: given.insert_into(insert(searches)),
            searches,
            ("request_id", "number", *SearchRow._fields),
        )
        self.add_hour = statement(partial(_add_hour, dialect), usage_hours, HourDelta._fields)
        fields = TokenDelta._fields
        types = dict.fromkeys(fields, BigInteger()) | {"token_id": tokens.c.id.type}
        self.add_to_token = form(_add_to_token, types, fields, dialect)


@cache
def _compiled(many: bool, dialect: str) -> _Compiled:
    return _Compiled(MultiRowStatement if many else SingleRowStatement, registry.load(dialect)())


def _update_settled(given: Parameters) -> Update:
    return (
        update(requests)
        .where(requests.c.id == given.terms["id"], IS_RUNNING)
        .values({name: given.terms[name] for name in OUTCOME_FIELDS})
    )


def _add_to_token(given: Parameters) -> Update:
    terms = given.terms
    used_at = terms["used_at"]
    later = or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at < used_at)
    return (
        update(tokens)
        .where(tokens.c.id == terms["token_id"])
        .values({name: tokens.c[name] + terms[name] for name in TOKEN_TOTALS})
        .values(last_used_at=case((later, used_at), else_=tokens.c.last_used_at))
    )


def insert_or_add(dialect: Dialect, into: Table) -> Insert:
    """An insertion that adds to the row of the same key, if there is one."""
    # Imported by name: the insertion of a database that is not in use delays the start.
    insertion = import_module(f"sqlalchemy.dialects.{dialect.name}").insert(into)
    key = into.primary_key.columns
    added = {
        column.name: column + insertion.excluded[column.name]
        for column in into.columns
        if column.name not in key
    }
    upsert: Insert = insertion.on_conflict_do_update(index_elements=list(key), set_=added)
    return upsert


def _add_hour(dialect: Dialect, given: Parameters) -> Insert:
    return given.insert_into(insert_or_add(dialect, usage_hours))
