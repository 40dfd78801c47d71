"""The process log's line of a request, made from its row of the request log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from gateway.core.text import escape_unprintable
from gateway.store.records import ExchangeState, RequestRow
from gateway.telemetry.log_lines import Redact, level_name, timestamp
from gateway.telemetry.observed_request import is_client_mistake

LOGGER: Final = "gateway.requests"

_FAILED: Final = frozenset(
    {ExchangeState.ERROR, ExchangeState.UPSTREAM_CUT, ExchangeState.CLIENT_SLOW}
)
_MAX_TEXT: Final = 300
"""Characters of what the client chose."""
_SERVER_ERROR: Final = 500


def request_level(row: RequestRow) -> int:
    """A failed request is a warning, unless it was refused for a mistake of its client; one of a
    health check is for debugging only."""
    if row.state in _FAILED or ((row.status or 0) >= _SERVER_ERROR and not is_client_mistake(row)):
        return logging.WARNING
    if row.state is ExchangeState.OK and not row.token_id:
        return logging.DEBUG
    return logging.INFO


def request_fields(row: RequestRow, key: str, trace_id: str, redact: Redact) -> dict[str, Any]:
    """Returns the fields of a request without fields that have no value. `key` is what may be shown
    of the key; times are in milliseconds, `cost` is in units."""
    fields: dict[str, Any] = {
        "request_id": row.id,
        "trace_id": trace_id,
        "token_id": row.token_id,
        "key": key,
        "group": row.group_name,
        "client": row.client_address,
        "endpoint": redact(row.endpoint[:_MAX_TEXT]),
        "format": row.format,
        "stream": row.stream,
        "model": redact(row.model[:_MAX_TEXT]) if row.model else None,
        "upstream_model": row.upstream_model,
        "channel": row.channel,
        "account": row.account,
        "attempts": row.attempts,
        "status": row.status,
        "state": row.state.value,
        "end_reason": row.end_reason,
        "error_code": row.error_code,
        "upstream_status": row.upstream_status,
        "ttft_ms": _milliseconds(row.first_event_us),
        "duration_ms": _milliseconds(row.total_us),
    }
    if row.usage_source != "none":
        fields |= {
            "input_tokens": row.input_tokens,
            "cache_read_tokens": row.cache_read_tokens,
            "cache_write_tokens": row.cache_write_tokens,
            "output_tokens": row.output_tokens,
            "reasoning_tokens": row.reasoning_tokens,
            "cost": row.cost_micro / 1e6,
            "cost_usd": row.usd_micro / 1e6 if row.usd_micro else None,
        }
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def request_object(row: RequestRow, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`ts` is when the request began."""
    return {
        "ts": timestamp(row.started_at / 1e6),
        "level": level_name(request_level(row)),
        "logger": LOGGER,
        "message": _summary(row),
        **fields,
    }


def request_text(row: RequestRow, fields: Mapping[str, Any]) -> str:
    """Renders `fields` as `name=value`, in one line."""
    level = level_name(request_level(row)).upper()
    pairs = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
    return escape_unprintable(f"{level} {LOGGER}: {_summary(row)} {pairs}")


def _summary(row: RequestRow) -> str:
    return f"request {row.state.value.replace('_', ' ')}"


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f'"{text}"' if " " in text else text


def _milliseconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
