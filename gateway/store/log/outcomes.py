"""How requests turned out, in five kinds that are the same in lists, sums and charts."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, and_, or_

from gateway.core.value import FastStrEnum
from gateway.store.records import ExchangeState
from gateway.store.schema import requests


class Outcome(FastStrEnum):
    """`rejected` by limits or because a request is invalid, `permission` because its key may not
    do that; both before an upstream was asked."""

    SUCCESS = "success"
    UPSTREAM_ERROR = "upstream_error"
    REJECTED = "rejected"
    PERMISSION = "permission"
    CLIENT_LEFT = "client_left"


PERMISSION_CODES: Final = frozenset(
    {"permission_denied", "user_agent_not_allowed", "model_not_found", "invalid_api_key"}
)
"""Error codes of rejected requests. A model that a key may not use is not found."""

_OF_STATE: Final = {
    ExchangeState.OK: Outcome.SUCCESS,
    ExchangeState.ERROR: Outcome.UPSTREAM_ERROR,
    ExchangeState.UPSTREAM_CUT: Outcome.UPSTREAM_ERROR,
    ExchangeState.INTERRUPTED: Outcome.UPSTREAM_ERROR,
    ExchangeState.CLIENT_GONE: Outcome.CLIENT_LEFT,
    ExchangeState.CLIENT_SLOW: Outcome.CLIENT_LEFT,
}


def outcome_of(state: ExchangeState, error_code: str | None) -> Outcome | None:
    """Returns the outcome of a row; None while it is running."""
    if state is ExchangeState.REJECTED:
        return Outcome.PERMISSION if error_code in PERMISSION_CODES else Outcome.REJECTED
    return _OF_STATE.get(state)


def has_outcome(outcome: Outcome) -> ColumnElement[bool]:
    """The same as a condition of rows."""
    state, code = requests.c.state, requests.c.error_code
    if outcome is Outcome.PERMISSION:
        return and_(state == ExchangeState.REJECTED, code.in_(sorted(PERMISSION_CODES)))
    if outcome is Outcome.REJECTED:
        others = or_(code.is_(None), code.not_in(sorted(PERMISSION_CODES)))
        return and_(state == ExchangeState.REJECTED, others)
    return state.in_([each for each, found in _OF_STATE.items() if found is outcome])
