"""How requests turned out: in eight kinds that sums of traffic count, which make the five that are
the same in lists, sums and charts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import ColumnElement, and_, or_

from gateway.core.value import FastStrEnum
from gateway.store.measures import OutcomeKind
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

KIND_OF_STATE: Final[Mapping[str, OutcomeKind]] = {
    ExchangeState.OK: OutcomeKind.OK,
    ExchangeState.ERROR: OutcomeKind.FAILED,
    ExchangeState.UPSTREAM_CUT: OutcomeKind.FAILED,
    ExchangeState.INTERRUPTED: OutcomeKind.INTERRUPTED,
    ExchangeState.CLIENT_GONE: OutcomeKind.CLIENT_LEFT,
    ExchangeState.CLIENT_SLOW: OutcomeKind.CLIENT_LEFT,
}
KIND_OF_CODE: Final[Mapping[str | None, OutcomeKind]] = {
    "rate_limit_exceeded": OutcomeKind.RATE_LIMITED,
    "insufficient_quota": OutcomeKind.OVER_BUDGET,
    **dict.fromkeys(sorted(PERMISSION_CODES), OutcomeKind.FORBIDDEN),
}
"""The kinds of rejected requests by error code; those with another are `REFUSED`."""

OUTCOME_OF_KIND: Final[Mapping[OutcomeKind, Outcome]] = {
    OutcomeKind.OK: Outcome.SUCCESS,
    OutcomeKind.FAILED: Outcome.UPSTREAM_ERROR,
    OutcomeKind.INTERRUPTED: Outcome.UPSTREAM_ERROR,
    OutcomeKind.CLIENT_LEFT: Outcome.CLIENT_LEFT,
    OutcomeKind.FORBIDDEN: Outcome.PERMISSION,
    OutcomeKind.RATE_LIMITED: Outcome.REJECTED,
    OutcomeKind.OVER_BUDGET: Outcome.REJECTED,
    OutcomeKind.REFUSED: Outcome.REJECTED,
}


def kind_of(state: str, error_code: str | None) -> OutcomeKind | None:
    """Returns the kind of a row's outcome; None while it is running."""
    if state == ExchangeState.REJECTED:
        return KIND_OF_CODE.get(error_code, OutcomeKind.REFUSED)
    return KIND_OF_STATE.get(state)


def outcome_of(state: ExchangeState, error_code: str | None) -> Outcome | None:
    """Returns the outcome of a row; None while it is running."""
    kind = kind_of(state, error_code)
    return None if kind is None else OUTCOME_OF_KIND[kind]


def is_of_kind(*kinds: OutcomeKind) -> ColumnElement[bool]:
    """The same as `kind_of`, as a condition of rows."""
    state, code = requests.c.state, requests.c.error_code
    states = [each for each, kind in KIND_OF_STATE.items() if kind in kinds]
    conditions: list[ColumnElement[bool]] = [state.in_(states)] if states else []
    codes = [each for each, kind in KIND_OF_CODE.items() if kind in kinds]
    if OutcomeKind.REFUSED in kinds:
        others = [each for each, kind in KIND_OF_CODE.items() if kind not in kinds]
        is_other = or_(code.is_(None), code.not_in(others))
        conditions.append(and_(state == ExchangeState.REJECTED, is_other))
    elif codes:
        conditions.append(and_(state == ExchangeState.REJECTED, code.in_(codes)))
    return or_(*conditions)


def has_outcome(outcome: Outcome) -> ColumnElement[bool]:
    """The same as `outcome_of`, as a condition of rows."""
    return is_of_kind(*(kind for kind, found in OUTCOME_OF_KIND.items() if found is outcome))
