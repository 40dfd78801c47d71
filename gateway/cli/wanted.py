"""Options that narrow which rows of the ledger are meant. It must not know what is done with them.

They become the query of `/requests`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from gateway.cli.reference import KeyRecord, find_key
from gateway.cli.typed import PAST_TIME
from gateway.store.records import ExchangeState

LogQuery = Callable[[list[KeyRecord]], dict[str, Any]]
"""The fields of the query, from the keys that exist; those that are None narrow nothing."""

_FILTER_FIELDS: Final = (
    *("since", "until", "group_name", "model", "channel", "account"),
    *("state", "status", "error_code", "text"),
)
_STATUS_PATTERN: Final = re.compile(r"[1-5](\d\d|xx)", re.ASCII)


def _status(text: str) -> str:
    if not _STATUS_PATTERN.fullmatch(text):
        raise click.BadParameter("must be a status such as 503 or a class such as 5xx")
    return text


_FILTER_OPTIONS: Final = (
    click.option(
        "--since",
        metavar="24h|DATE",
        type=PAST_TIME,
        help="Only what began since then: a time of UTC, or a duration ago.",
    ),
    click.option("--until", metavar="24h|DATE", type=PAST_TIME, help="Only what began before."),
    click.option("--key", "reference", metavar="ID|NAME", help="Only requests of this key."),
    click.option("--group", "group_name", help="Only requests of this group's keys."),
    click.option("--model", help="Only requests for this model, as sent or of the catalog."),
    click.option("--channel", help="Only what this channel was asked."),
    click.option("--account", help="Only what accounts of this name were asked."),
    click.option(
        "--state",
        type=click.Choice([str(each) for each in ExchangeState]),
        help="Only this state.",
    ),
    click.option(
        "--status", metavar="503|5xx", type=_status, help="Only this status, or this class."
    ),
    click.option("--error", "error_code", metavar="CODE", help="Only failures of this code."),
    click.option(
        "--text", help="Only with this in the upstream's error, the code or the client's own id."
    ),
)


def with_log_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options; it takes a `query`."""

    @wraps(command)
    def with_query(reference: str | None, **rest: Any) -> None:
        fields = {name: rest.pop(name) for name in _FILTER_FIELDS}

        def query(keys: list[KeyRecord]) -> dict[str, Any]:
            token_id = find_key(keys, reference)["id"] if reference is not None else None
            return fields | {"token_id": token_id}

        command(query=query, **rest)

    decorated: Callable[..., None] = with_query
    for option in reversed(_FILTER_OPTIONS):
        decorated = option(decorated)
    return decorated
