"""Leases of budgets on a database server: amounts that are reserved for one replica.

For every window of a budget, `spending in the window + all leases <= limit` holds. A grant checks
it while it holds the holder's lock; a settlement moves its cost from the lease to the spending in
one transaction. A lease can be below 0, if requests cost more than they had reserved; it counts as
0.

A lease ends with its epoch's row in `replicas`: when the replica stops, or when others remove it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, Final, NamedTuple

import orjson

from gateway.config.cluster import DatabaseServer
from gateway.core.limits import FREE, Cost
from gateway.store.errors import ReplicaRemoved
from gateway.store.log.spending import Spend
from gateway.store.postgresql.connection import connect, time_limits
from gateway.store.postgresql.schema import AdvisoryLock
from gateway.store.records import DAY_US, HOUR_US, STEP_US

CHANNEL: Final = "gateway_leases"
"""Notifications of holders, as `kind id`, whose leases others need."""
MAX_HOLDERS: Final = 100
"""Maximum number of holders in one transaction."""

_WEEK_US: Final = 7 * DAY_US
_FIVE_HOURS_US: Final = 5 * HOUR_US

HolderKey = tuple[str, str]
"""`key` and a token's id, `group` and a name, or as `gateway.store.records.dimension_holders`."""

_BEGIN: Final = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_current_xact_id()::text
FROM replicas WHERE epoch = $1 FOR KEY SHARE
"""
_STATUS: Final = "SELECT pg_xact_status($1::text::xid8)"
_FUNCTIONS: Final = f"""
CREATE FUNCTION pg_temp.figures(kinds text[], ids text[], moment bigint)
RETURNS TABLE (kind text, id text, what text, start bigint, units bigint, usd bigint)
LANGUAGE plpgsql AS $body$
    #variable_conflict use_column
DECLARE
    month CONSTANT timestamp := date_trunc('month', to_timestamp(moment / 1000000)
        AT TIME ZONE 'UTC');
    first_day CONSTANT bigint := extract(epoch FROM month) * 1000000;
BEGIN
    -- One statement, so one moment: a settlement in between would count nowhere.
    RETURN QUERY WITH holder AS (SELECT * FROM unnest(kinds, ids) AS given (kind, id))
    SELECT kind, id, period, start, units, usd FROM holder
    JOIN spending ON holder_kind = kind AND holder_id = id
    WHERE period = 'total' OR (period = 'day' AND start >= first_day)
        OR (period = 'hour' AND start >= moment - {_WEEK_US + HOUR_US})
        OR (period = 'step' AND start >= moment - {_FIVE_HOURS_US + STEP_US})
    UNION ALL SELECT kind, id, 'lease', epoch, units, usd FROM holder
    JOIN budget_leases ON holder_kind = kind AND holder_id = id;
END
$body$;
CREATE FUNCTION pg_temp.locked_figures(own bigint, kinds text[], ids text[], since bigint)
RETURNS TABLE (kind text, id text, what text, start bigint, units bigint, usd bigint)
LANGUAGE plpgsql AS $body$
    #variable_conflict use_column
DECLARE
    now CONSTANT bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
    PERFORM FROM replicas WHERE epoch = own FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT '', pg_current_xact_id()::text, '', now, 0::bigint, 0::bigint;
    PERFORM pg_advisory_xact_lock({AdvisoryLock.LEASES:d}, hashtext(kind || ' ' || id))
    FROM unnest(kinds, ids) AS given (kind, id);
    -- The next statement sees what was committed before the locks were granted.
    RETURN QUERY SELECT * FROM pg_temp.figures(kinds, ids, least(now, since));
END
$body$;
CREATE FUNCTION pg_temp.grant_leases(own bigint, amounts text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO budget_leases (holder_kind, holder_id, epoch, units, usd)
    SELECT given->>0, given->>1, own, (given->>2)::bigint, (given->>3)::bigint
    FROM json_array_elements(convert_from(decode(amounts, 'hex'), 'UTF8')::json) AS given
    ON CONFLICT (holder_kind, holder_id, epoch) DO UPDATE
    SET units = budget_leases.units + excluded.units, usd = budget_leases.usd + excluded.usd;
END
$body$;
"""  # noqa: S608 - only numbers of this module are in it
"""The functions of the session, so always of this release. A grant has three round trips: the
replica's row and the holders are locked and read, in turn, by one call; and what is granted leaves
with the commit, in one text without parameters."""

_FIGURES: Final = "SELECT * FROM pg_temp.figures($1, $2, $3)"
_LOCKED_FIGURES: Final = "SELECT * FROM pg_temp.locked_figures($1, $2, $3, $4)"
"""The first row has the transaction's id and the server's time; none where the epoch has ended."""
_OUTLINES: Final = """
SELECT given.kind, given.id, coalesce(total.units, 0), coalesce(total.usd, 0),
    coalesce(leases.units, 0)::bigint, coalesce(leases.usd, 0)::bigint
FROM unnest($1::text[], $2::text[]) AS given (kind, id)
LEFT JOIN spending AS total ON total.holder_kind = given.kind AND total.holder_id = given.id
    AND total.period = 'total'
LEFT JOIN LATERAL (
    SELECT sum(greatest(0, units)) AS units, sum(greatest(0, usd)) AS usd FROM budget_leases
    WHERE holder_kind = given.kind AND holder_id = given.id AND epoch <> $3
) AS leases ON true
"""
_GIVE_BACK: Final = """
UPDATE budget_leases AS lease SET units = lease.units - given.units, usd = lease.usd - given.usd
FROM unnest($1::text[], $2::text[], $4::bigint[], $5::bigint[]) AS given (kind, id, units, usd)
WHERE lease.holder_kind = given.kind AND lease.holder_id = given.id AND lease.epoch = $3
"""
_NOTIFY: Final = "SELECT pg_notify($1, $2)"


@dataclass(frozen=True, slots=True)
class Figures:
    """The spending of one holder by all replicas, the leases of other replicas (`elsewhere`), and
    this replica's lease (`own`; None: it has none)."""

    spend: Spend
    elsewhere: Cost
    own: Cost | None

    @property
    def leased(self) -> Cost:
        """Returns what is leased by all replicas."""
        return _plus(self.elsewhere, self.own or FREE)


class Outline(NamedTuple):
    """A summary of one holder's figures: all that was spent, and what other replicas have
    leased."""

    total: Cost
    elsewhere: Cost


Decide = Callable[[HolderKey, Figures, int], Cost]
"""Returns the amount by which a holder's lease grows; the last argument is the server's time in
Unix us."""


Amounts = Mapping[HolderKey, Cost]


class _Unclear(NamedTuple):
    """A transaction with an unknown outcome, and the amounts by which each outcome changes the
    leases as this replica knows them. Without an id it was not committed."""

    id: str | None
    if_committed: Amounts
    if_aborted: Amounts


class LeaseTable:
    """One connection, opened if there is none. It is used by one task at a time. Every method
    raises one of `connection.ERRORS`; `settle_unclear` tells later whether it happened."""

    def __init__(
        self, server: DatabaseServer, on_needed: Callable[[HolderKey], None] | None = None
    ) -> None:
        """`on_needed` is called when another replica needs what this one has leased."""
        self._server = server
        self._on_needed = on_needed
        self._connection: Any = None
        self._unclear: list[_Unclear] = []

    async def grant(
        self, epoch: int, holders: Sequence[HolderKey], since: int, decide: Decide
    ) -> Amounts:
        """Lease to this replica what `decide` returns for each holder, in one transaction. `since`
        is the earliest start of a waiting request, in Unix us. Raises ReplicaRemoved if the epoch
        has ended."""
        holders = sorted(holders)
        amounts: Amounts = {}
        id = None
        try:
            connection = await self._connected()
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            kinds, ids = [kind for kind, _ in holders], [id for _, id in holders]
            rows = await connection.fetch(_LOCKED_FIGURES, epoch, kinds, ids, since)
            if not rows:
                raise ReplicaRemoved
            (_, id, _, now, *_), *rows = rows
            figures = _figures_of(rows, epoch, holders)
            amounts = {each: decide(each, figures[each], now) for each in holders}
            await connection.execute(_grant_and_commit(epoch, amounts))
        except BaseException:
            self._unclear.append(_Unclear(id, amounts, {}))
            self.disconnect()  # which ends the transaction
            raise
        return amounts

    async def give_back(self, epoch: int, amounts: Amounts) -> None:
        """Reduce the leases by amounts that this replica no longer uses. Raises ReplicaRemoved."""
        id = None
        try:
            connection = await self._connected()
            transaction = connection.transaction()
            await transaction.start()
            _, id = await self._begin(connection, epoch)
            await connection.execute(_GIVE_BACK, *_arguments(epoch, amounts))
            await transaction.commit()
        except BaseException:
            self._unclear.append(_Unclear(id, {}, amounts))
            self.disconnect()
            raise

    async def settle_unclear(self) -> Amounts:
        """Look up the transactions with an unknown outcome. Returns the amounts to add to the
        leases as this replica knows them: of committed grants, and of returns that were rolled
        back."""
        added = defaultdict[HolderKey, Cost](Cost)
        while self._unclear:
            status = "aborted"
            if (id := self._unclear[0].id) is not None:
                status = await (await self._connected()).fetchval(_STATUS, id)
            if status == "in progress":
                raise TimeoutError
            _, if_committed, if_aborted = self._unclear.pop(0)
            for key, cost in (if_committed if status == "committed" else if_aborted).items():
                added[key] = Cost(*map(add, added[key], cost))
        return added

    def forget_unclear(self) -> None:
        """The epoch has ended, and with it all leases."""
        self._unclear.clear()

    async def _begin(self, connection: Any, epoch: int) -> tuple[int, str]:
        """The server's time, and the transaction's id."""
        row = await connection.fetchrow(_BEGIN, epoch)
        if row is None:
            raise ReplicaRemoved
        return row[0], row[1]

    async def figures(
        self, epoch: int, holders: Sequence[HolderKey], now: int
    ) -> dict[HolderKey, Figures]:
        """The current figures; `now` is about the server's time, in Unix us."""
        connection = await self._connected()
        kinds, ids = [kind for kind, _ in holders], [id for _, id in holders]
        return _figures_of(await connection.fetch(_FIGURES, kinds, ids, now), epoch, holders)

    async def outlines(self, epoch: int, holders: Sequence[HolderKey]) -> dict[HolderKey, Outline]:
        """A small part of the figures, which shows whether they have changed."""
        connection = await self._connected()
        kinds, ids = [kind for kind, _ in holders], [id for _, id in holders]
        return {
            (kind, id): Outline(Cost(units, usd), Cost(*leased))
            for kind, id, units, usd, *leased in await connection.fetch(
                _OUTLINES, kinds, ids, epoch
            )
        }

    async def ask_others(self, holders: Iterable[HolderKey]) -> None:
        """Notify the other replicas, so that they return what they do not use of these leases."""
        connection = await self._connected()
        for kind, id in holders:
            await connection.execute(_NOTIFY, CHANNEL, f"{kind} {id}")

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            server = self._server
            connection = await connect(server, server.timeout, time_limits(server))
            await connection.execute(_FUNCTIONS)
            if self._on_needed is not None:
                await connection.add_listener(CHANNEL, self._notified)
            self._connection = connection
        return self._connection

    def _notified(self, _connection: object, pid: int, _channel: str, payload: str) -> None:
        is_own = self._connection is not None and pid == self._connection.get_server_pid()
        kind, _, id = payload.partition(" ")
        if self._on_needed is not None and not is_own:
            self._on_needed((kind, id))


def _figures_of(
    rows: Iterable[Any], epoch: int, holders: Iterable[HolderKey]
) -> dict[HolderKey, Figures]:
    """Reads the figures from rows as the functions return them."""
    spend = defaultdict[HolderKey, Spend](Spend)
    elsewhere, own = defaultdict[HolderKey, Cost](Cost), dict[HolderKey, Cost]()
    for kind, id, what, start, *amounts in rows:
        key, cost = (kind, id), Cost(*amounts)
        match what:
            case "total":
                spend[key].total = cost
            case "day":
                spend[key].by_day[start] = cost
            case "hour":
                spend[key].by_hour[start] = cost
            case "step":
                spend[key].by_step[start] = cost
            case _ if start == epoch:
                own[key] = cost
            case _:
                elsewhere[key] = _plus(elsewhere[key], cost)
    return {each: Figures(spend[each], elsewhere[each], own.get(each)) for each in holders}


def _grant_and_commit(epoch: int, amounts: Amounts) -> str:
    """Names are in hexadecimal digits: nothing in them can end the text."""
    changed = [(*key, *cost) for key, cost in amounts.items() if cost != FREE]
    if not changed:
        return "COMMIT"
    return f"SELECT pg_temp.grant_leases({epoch}, '{orjson.dumps(changed).hex()}'); COMMIT"


def _plus(amount: Cost, lease: Cost) -> Cost:
    """The sum of an amount and a lease; a lease below 0 counts as 0."""
    return Cost(*(old + max(0, new) for old, new in zip(amount, lease, strict=True)))


def _arguments(epoch: int, amounts: Mapping[HolderKey, Cost]) -> tuple[Any, ...]:
    ordered = sorted(amounts.items())
    return (
        [kind for (kind, _), _ in ordered],
        [id for (_, id), _ in ordered],
        epoch,
        [cost.units for _, cost in ordered],
        [cost.usd for _, cost in ordered],
    )
