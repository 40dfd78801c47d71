"""The attributes of spans, made from rows: OpenTelemetry's conventions for HTTP and for GenAI.

No prompt, reply, search query or error text of an upstream is among them. Attributes of the
conventions have their names there; the gateway's own begin with `gateway.`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from gateway.store.records import AttemptRow, ExchangeState, RequestRow, SearchRow

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]

OK_VERDICT: Final = "ok"
ABANDONED: Final = "given up"
"""Verdicts of attempts that are no error of the upstream's."""

_PROVIDERS: Final = {"messages": "anthropic"}
"""What an upstream of the format is called, whoever runs it; openai for the other formats."""
_PORTS: Final = {"http": 80, "https": 443}
_FAILED: Final = frozenset({ExchangeState.ERROR, ExchangeState.UPSTREAM_CUT})
_SERVER_ERROR: Final = 500


def request_attributes(row: RequestRow) -> Attributes:
    return _present(
        {
            "http.response.status_code": row.status,
            "client.address": row.client_address,
            "error.type": (row.error_code or row.end_reason) if request_failed(row) else None,
            "gateway.request.id": row.id,
            "gateway.key.id": row.token_id,
            "gateway.group": row.group_name,
            "gateway.model": row.catalog_model or row.model,
            "gateway.format": row.format,
            "gateway.stream": row.stream,
            "gateway.attempts": row.attempts,
            "gateway.state": row.state.value,
            "gateway.end_reason": row.end_reason,
            "gateway.error.code": row.error_code,
            "gateway.cost": row.cost_micro / 1e6,
            "gateway.cost_usd": row.usd_micro / 1e6 if row.usd_micro else None,
        }
    )


def request_failed(row: RequestRow) -> bool:
    """Whether the gateway or an upstream is at fault; an error of the client's is no failure."""
    return row.state in _FAILED or (row.status or 0) >= _SERVER_ERROR


def attempt_attributes(row: AttemptRow) -> Attributes:
    """Of an attempt, whatever became of it."""
    failed = attempt_failed(row)
    first = row.first_event_us
    return _present(
        {
            "gen_ai.provider.name": _PROVIDERS.get(row.format, "openai"),
            "gen_ai.response.time_to_first_chunk": None if first is None else first / 1e6,
            "http.response.status_code": row.status,
            "error.type": row.verdict if failed else None,
            "gateway.channel": row.channel,
            "gateway.account": row.account,
            "gateway.upstream.format": row.format,
            "gateway.lane": row.lane,
            "gateway.attempt.reason": row.reason,
            "gateway.attempt.verdict": row.verdict,
            "gateway.attempt.next": row.next,
        }
    )


def attempt_failed(row: AttemptRow) -> bool:
    return row.verdict not in (OK_VERDICT, ABANDONED)


def usage_attributes(row: RequestRow) -> Attributes:
    """Of the attempt whose reply the client received. `input_tokens` has cached ones too."""
    attributes = _present({"gen_ai.request.stream": row.stream or None})
    if row.stop_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (row.stop_reason,)
    if row.usage_source != "none":
        attributes |= {
            "gen_ai.usage.input_tokens": row.input_tokens,
            "gen_ai.usage.output_tokens": row.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": row.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": row.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": row.reasoning_tokens,
            "gateway.usage.source": row.usage_source,
        }
    return attributes


def search_attributes(row: SearchRow) -> Attributes:
    return _present(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "web_search",
            "error.type": row.error.partition(":")[0] if row.error else None,
            "gateway.search.results": row.results,
        }
    )


@lru_cache(maxsize=256)
def server_attributes(base_url: str) -> Attributes:
    """Where a channel's upstream is. Do not change the result."""
    parts = urlsplit(base_url)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or _PORTS.get(parts.scheme, 0),
    }


def _present(attributes: dict[str, Value | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None and value != ""}
