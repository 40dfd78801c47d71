"""The rows of an exchange: its intent before the first attempt, and its settlement at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from gateway.store.records import ExchangeState, RequestRow

if TYPE_CHECKING:
    from gateway.errors import GatewayError
    from gateway.server.billing import Bill
    from gateway.server.exchange import Exchange

_UNPRINTABLE: Final = re.compile(r"[^\x21-\x2b\x2d-\x7e]")
"""A client may call its own fields anything; names are separated by commas."""

_CHANNEL: Final = RequestRow._fields.index("channel")
_STATE: Final = RequestRow._fields.index("state")
_CATALOG_MODEL: Final = RequestRow._fields.index("catalog_model")

_NO_OUTCOME: Final = tuple(
    RequestRow._field_defaults[name] for name in RequestRow._fields[_STATE + 1 : _CATALOG_MODEL]
)

_MAX_MESSAGE: Final = 2048
"""Characters of an error message that are kept."""
_MAX_ERROR: Final = 8192
"""The same of an upstream's error."""

_MAX_NAME: Final = 64
_MAX_NAMES: Final = 32


def build_intent(exchange: Exchange) -> RequestRow:
    # In the order of the fields: keyword arguments cost more than everything else here.
    token, prompt, candidate = exchange.token, exchange.prompt, exchange.candidate
    meter, warnings = exchange.meter, exchange.warnings
    return RequestRow._make(
        (
            exchange.id,
            exchange.started,
            token.id if token else "",
            token.group if token else "",
            exchange.endpoint,
            exchange.format,
            prompt.model if prompt else None,
            candidate.channel if candidate else None,
            candidate.account if candidate else None,
            candidate.target.model if candidate else None,
            candidate.lane._value_ if candidate else None,
            prompt.stream if prompt else False,
            exchange.client_address,
            exchange.user_agent,
            exchange.client_request_id,
            exchange.bytes_in,
            ExchangeState.RUNNING,
            *_NO_OUTCOME,
            meter.model,
            meter.estimated_tokens,
            meter.estimated_cost.units,
            meter.price.description if meter.price else None,
            "; ".join(warnings) if warnings else None,
            0,
            0,
            None,
            1,
            0,
            meter.estimated_cost.usd,
            0,
        )
    )


def build_settlement(exchange: Exchange, intent: RequestRow, bill: Bill) -> RequestRow:
    usage, error, failure = bill.usage, exchange.error, exchange.failure
    candidate, committed_at = exchange.candidate, exchange.committed_at
    started, ended = exchange.started_clock, exchange.ended_at or perf_counter()
    has_note = failure is not None or exchange.upstream_note is not None
    return RequestRow._make(
        (
            *intent[:_CHANNEL],
            candidate.channel if candidate else None,
            candidate.account if candidate else None,
            candidate.target.model if candidate else None,
            candidate.lane._value_ if candidate else None,
            *intent[_CHANNEL + 4 : _STATE],
            exchange.state,
            exchange.status,
            exchange.stop_reason._value_ if exchange.stop_reason else None,
            _end_reason(exchange),
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            bill.source,
            round((committed_at - started) * 1e6) if committed_at else None,
            round((ended - started) * 1e6),
            exchange.bytes_out,
            error.code if error else None,
            failure.status if failure else None,
            _upstream_error(exchange) if has_note else None,
            format_dropped(exchange.dropped) if exchange.dropped else None,
            intent.boot_id,
            candidate.format._value_ if candidate else None,
            exchange.affinity_source,
            exchange.affinity_outcome,
            exchange.snapshot.hash,
            len(exchange.attempts),
            *intent[_CATALOG_MODEL : _CATALOG_MODEL + 4],
            "; ".join(exchange.warnings) if exchange.warnings else None,
            usage.cache_write_1h_tokens,
            bill.cost.units,
            _error_message(exchange, error) if error else None,
            1,
            usage.web_searches,
            intent.expected_usd_micro,
            bill.cost.usd,
        )
    )


def format_dropped(names: Iterable[str]) -> str:
    """The names as the row and the client's header have them."""
    shown = sorted({_UNPRINTABLE.sub("?", name)[:_MAX_NAME] for name in names})
    if len(shown) > _MAX_NAMES:
        shown[_MAX_NAMES:] = ["..."]
    return ", ".join(shown)


def _end_reason(exchange: Exchange) -> str:
    if exchange.state is ExchangeState.CLIENT_GONE:
        return "client_gone"
    if exchange.failure is not None:
        return f"upstream_{exchange.failure.kind.value}"
    if exchange.error is not None:
        return "refused" if exchange.intent is None else "failed"
    return "complete"


def _upstream_error(exchange: Exchange) -> str | None:
    failure = exchange.failure
    text = exchange.upstream_note if failure is None else failure.body or failure.message
    return None if text is None else exchange.snapshot.redactor.redact_secrets(text)[:_MAX_ERROR]


def _error_message(exchange: Exchange, error: GatewayError) -> str:
    """The detail of an upstream's failure is in the upstream's error."""
    detail = f" ({error.detail})" if error.detail and exchange.failure is None else ""
    return exchange.snapshot.redactor.redact_secrets(error.message + detail)[:_MAX_MESSAGE]
