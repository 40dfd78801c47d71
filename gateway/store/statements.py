"""The recorder's statements: written with Core, compiled once, sent to the driver as they are.

Going through Core for every batch would cost more than the rows do, and so would going through the
engine: in a batch of one exchange, half of the processor's time. This room must not know when or
in which order the statements run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Insert,
    Table,
    Update,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError

from gateway.store.batch import HOUR, Credit, Hour, Standing
from gateway.store.records import Attempted, ExchangeState, Intent, Settlement
from gateway.store.schema import attempts, requests, tokens, usage_hours

LARGEST_LOOKUP = 200


END = tuple(field for field in Settlement._fields if field not in Intent._fields)
"""The fields of a settlement that its intent does not have: a whole row is `intent + END`."""

ANEW = ("channel", "account", "upstream_model", "lane")
"""What an intent has said and a settlement may say anew."""

ATTEMPT = ("request_id", "number", *Attempted._fields)

IS_OPEN = requests.c.state == literal_column(f"'{ExchangeState.OPEN}'")
"""Spoken as a literal: with a parameter SQLite could not use the partial index."""

PLACE: Mapping[str, ColumnElement[Any]] = {
    # Spoken as literals: a server would take two parameters for two different expressions.
    "hour": requests.c.started_at // literal(HOUR, literal_execute=True),
    "token_id": requests.c.token_id,
    "group_name": requests.c.group_name,
    "model": func.coalesce(requests.c.catalog_model, literal("", literal_execute=True)),
}
"""Which of the hourly sums a row of `requests` is counted in."""


def sum_of(column: ColumnElement[int]) -> ColumnElement[int]:
    """A whole number, 0 of no rows: a server's own sums are decimal numbers, or nothing."""
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


@contextmanager
def driver(connection: Connection) -> Iterator[DBAPICursor]:
    """The driver's own cursor, inside the connection's transaction; faults are the engine's."""
    cursor = connection.connection.cursor()
    try:
        yield cursor
    except connection.dialect.loaded_dbapi.Error as fault:
        raise DBAPIError.instance(
            None, None, fault, connection.dialect.loaded_dbapi.Error, dialect=connection.dialect
        ) from fault
    finally:
        cursor.close()


class Statement:
    """One statement, and the way from a row in the order of `fields` to its parameters."""

    def __init__(
        self, executable: Insert | Update, fields: Sequence[str], dialect: Dialect
    ) -> None:
        compiled: Any = executable.compile(
            dialect=dialect, compile_kwargs={"render_postcompile": True}
        )
        order = [fields.index(name.removeprefix(_MARK)) for name in compiled.positiontup]
        self._sql = str(compiled)
        self._arrange: Callable[[Sequence[Any]], Any] | None = (
            None if order == list(range(len(fields))) else itemgetter(*order)
        )

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Once for each row, together; nothing at all where there is none."""
        if rows:
            # Plain tuples: of any other kind the driver fetches every field by a call.
            arranged = list(map(self._arrange or tuple, rows))
            with driver(connection) as cursor:
                cursor.executemany(self._sql, arranged)


class Lookup:
    """How the rows of some ids stand: the id of each that exists and the fields of Standing."""

    def __init__(self, dialect: Dialect) -> None:
        self._sizes = [(size, _lookup(size, dialect)) for size in (1, 20, LARGEST_LOOKUP)]

    def run(self, connection: Connection, ids: Sequence[str]) -> Sequence[Any]:
        """At most `LARGEST_LOOKUP` ids. A few fixed texts: the driver keeps them prepared."""
        if not ids:
            return []
        size, sql = next(fitting for fitting in self._sizes if fitting[0] >= len(ids))
        padded = (*ids, *[ids[0]] * (size - len(ids)))
        with driver(connection) as cursor:
            cursor.execute(sql, padded)
            return list(cursor.fetchall())


def _lookup(size: int, dialect: Dialect) -> str:
    query = select(requests.c.id, *(requests.c[name] for name in Standing._fields))
    compiled = query.where(requests.c.id.in_([""] * size)).compile(
        dialect=dialect, compile_kwargs={"render_postcompile": True}
    )
    return str(compiled)


class Statements:
    """Everything that the recorder says, for one dialect and one boot."""

    def __init__(self, dialect: Dialect, boot_id: str) -> None:
        boot: BindParameter[str] = bindparam("boot", boot_id, literal_execute=True)
        self.intend = Statement(
            insert(requests).values(
                _parameters(Intent._fields) | {"state": IS_OPEN.right, "boot_id": boot}
            ),
            Intent._fields,
            dialect,
        )
        self.complete = Statement(
            insert(requests).values(_parameters(Intent._fields + END) | {"boot_id": boot}),
            Intent._fields + END,
            dialect,
        )
        self.settle = Statement(
            update(requests)
            .where(requests.c.id == _parameter(requests.c.id), IS_OPEN)
            .values(_parameters(END) | _parameters_if_given(ANEW)),
            Settlement._fields,
            dialect,
        )
        self.attempt = Statement(
            insert(attempts).values(_parameters(ATTEMPT, attempts)), ATTEMPT, dialect
        )
        self.standing = Lookup(dialect)
        self.hour = Statement(_hour(dialect), Hour._fields, dialect)
        self.credit = Statement(_credit(), Credit._fields, dialect)


_MARK = "p_"
"""Core keeps the bare names of a table's columns for parameters of its own."""


def _parameter(column: Column[Any], name: str | None = None) -> Any:
    return bindparam(_MARK + (name or column.name), type_=column.type, required=False)


def _parameters(fields: Sequence[str], table: Table = requests) -> dict[str, Any]:
    return {name: _parameter(table.c[name]) for name in fields}


def _parameters_if_given(fields: Sequence[str]) -> dict[str, Any]:
    return {
        name: func.coalesce(parameter, requests.c[name])
        for name, parameter in _parameters(fields).items()
    }


def _credit() -> Update:
    used_at = _parameter(tokens.c.last_used_at, "used_at")
    later = or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at < used_at)
    return (
        update(tokens)
        .where(tokens.c.id == _parameter(tokens.c.id, "token_id"))
        .values(
            requests=tokens.c.requests + _parameter(tokens.c.requests),
            input_tokens=tokens.c.input_tokens + _parameter(tokens.c.input_tokens),
            output_tokens=tokens.c.output_tokens + _parameter(tokens.c.output_tokens),
            cost_micro=tokens.c.cost_micro + _parameter(tokens.c.cost_micro),
            last_used_at=case((later, used_at), else_=tokens.c.last_used_at),
        )
    )


def _hour(dialect: Dialect) -> Insert:
    # Both speak the same words here, but Core has a pair of them.
    insert_of = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
    adding = insert_of(usage_hours).values(_parameters(Hour._fields, usage_hours))
    key = usage_hours.primary_key.columns
    return adding.on_conflict_do_update(
        index_elements=list(key),
        set_={
            column.name: column + adding.excluded[column.name]
            for column in usage_hours.columns
            if column.name not in key
        },
    )
