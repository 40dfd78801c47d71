"""What one transaction of the recorder writes, decided without a database.

How the rows of a batch stand when it begins is an argument. That makes the decision exact however
often a settlement comes, and whether or not an earlier try of the same batch was committed before
its answer was lost. This room must not know SQL, tasks or clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.store.records import Attempted, ExchangeState, Intent, Settlement

Entry = Intent | Settlement


class Standing(NamedTuple):
    """How a row of the database stands."""

    state: str
    started_at: int


class Credit(NamedTuple):
    """What a batch adds to the totals of one token; `used_at` is Unix µs."""

    token_id: str
    requests: int
    input_tokens: int
    output_tokens: int
    used_at: int

    def plus(self, other: Credit) -> Credit:
        """Both credits of the one token as one."""
        return Credit(
            self.token_id,
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            max(self.used_at, other.used_at),
        )


class Batch(NamedTuple):
    """Rows by the statement that writes them, in the order that they are written in.

    `whole` ones are opened and settled at once; those of `attempts` have the id of their exchange
    and their number, from 1, before their own fields.
    """

    intents: Sequence[Intent]
    whole: Sequence[tuple[Any, ...]]
    settlements: Sequence[tuple[Any, ...]]
    attempts: Sequence[tuple[Any, ...]]
    credits: Sequence[Credit]


def unsettled_elsewhere(entries: Iterable[Entry]) -> list[str]:
    """The ids whose standing decides: settlements whose intent is not among the entries."""
    opened = set()
    asked = []
    for entry in entries:
        if isinstance(entry, Intent):
            opened.add(entry.id)
        elif entry.id not in opened:
            asked.append(entry.id)
    return asked


def arrange(entries: Iterable[Entry], standing: Mapping[str, Standing]) -> Batch:
    """Intents of rows that are there already and settlements of rows that are not open fall out.

    An intent stands before its settlement. Only what really settles a row earns a credit.
    """
    intents: dict[str, Intent] = {}
    whole: list[tuple[Any, ...]] = []
    settlements: dict[str, tuple[Any, ...]] = {}
    attempts: list[tuple[Any, ...]] = []
    credits: dict[str, Credit] = {}
    for entry in entries:
        if isinstance(entry, Intent):
            if entry.id not in standing:
                intents[entry.id] = entry
        elif (intent := intents.pop(entry.id, None)) is not None:
            whole.append(_whole(intent, entry))
            attempts += _attempts(entry)
            _credit(credits, entry, intent.started_at)
        elif (
            entry.id not in settlements
            and (stands := standing.get(entry.id)) is not None
            and stands.state == ExchangeState.OPEN
        ):
            settlements[entry.id] = (*entry[:-1], len(entry.attempts))
            attempts += _attempts(entry)
            _credit(credits, entry, stands.started_at)
    return Batch(
        list(intents.values()),
        whole,
        list(settlements.values()),
        attempts,
        list(credits.values()),
    )


def _whole(intent: Intent, settlement: Settlement) -> tuple[Any, ...]:
    if settlement.channel is not None:
        intent = intent._replace(
            channel=settlement.channel,
            account=settlement.account,
            upstream_model=settlement.upstream_model,
            lane=settlement.lane,
        )
    return (*intent, *settlement[2:-5], len(settlement.attempts))


def _attempts(settlement: Settlement) -> Iterator[tuple[Any, ...]]:
    for number, attempted in enumerate(settlement.attempts, 1):
        yield (settlement.id, number, *attempted)


def _credit(credits: dict[str, Credit], settlement: Settlement, started_at: int) -> None:
    earned = Credit(
        settlement.token_id,
        1,
        settlement.input_tokens,
        settlement.output_tokens,
        started_at + settlement.total_us,
    )
    credits[earned.token_id] = (
        earned if (so_far := credits.get(earned.token_id)) is None else so_far.plus(earned)
    )


def mended(entry: Entry) -> Entry:
    """The entry without what a database cannot hold: lone surrogates, NULs, huge numbers.

    Header values may carry the first two; a row must not be lost for them.
    """
    return type(entry)._make(map(_mended, entry))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "�")
    if isinstance(value, int) and not isinstance(value, bool):
        return max(_LEAST, min(value, _MOST))
    if isinstance(value, tuple):
        return tuple(Attempted._make(map(_mended, attempted)) for attempted in value)
    return value


_LEAST, _MOST = -(2**53), 2**53
