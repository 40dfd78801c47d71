"""What a row of the request log shows beyond its columns: its outcome, its reason, its speed, and
a command that asks the same.
"""

from __future__ import annotations

import shlex
from typing import Any

import orjson

from gateway.core.formats import Format
from gateway.store.log.outcomes import Outcome, outcome_of
from gateway.store.records import RequestRow

_GREETING = [{"role": "user", "content": "Hello!"}]


def outcome(row: RequestRow) -> Outcome | None:
    """Returns None for a request that is running."""
    return outcome_of(row.state, row.error_code)


def reason(row: RequestRow) -> str:
    """Returns what is known of a failure, as one text: the upstream's own words where it has said
    something, else those that the client got."""
    status = f"{row.upstream_status}: " if row.upstream_status and row.upstream_error else ""
    said = f"{status}{row.upstream_error or row.error_message or ''}"
    code = row.error_code or ""
    return said if said.startswith(code) else " · ".join(filter(None, (code, said)))


def tokens_per_second(row: RequestRow) -> float | None:
    """Returns the speed of a stream after its first token, of a whole reply from its beginning."""
    if row.total_us is None:
        return None
    waited = row.first_event_us or 0 if row.stream else 0
    took = row.total_us - waited
    return row.output_tokens * 1e6 / took if row.output_tokens and took > 0 else None


def curl_command(row: RequestRow, address: str, version_header: str) -> str:
    """Returns a command that asks the same of the same model; neither keys nor bodies are stored,
    so they are placeholders. `version_header` is the one that messages requests need."""
    of_version = f"{version_header}: 2023-06-01"
    headers = ["content-type: application/json"]
    body: dict[str, Any] = {"model": row.model or "MODEL"}
    if row.format in (Format.CHAT, Format.MESSAGES):
        body |= {"messages": _GREETING}
    else:
        body |= {"input": "Hello!"}
    if row.format == Format.MESSAGES:
        headers.append(of_version)
        body |= {"max_tokens": 200}
    if row.stream:
        body |= {"stream": True}
    lines = [
        f"curl -sS {shlex.quote(address + row.endpoint)}",
        '-H "authorization: Bearer $GATEWAY_KEY"',
        *(f"-H {shlex.quote(header)}" for header in headers),
        f"-d {shlex.quote(orjson.dumps(body).decode())}",
    ]
    return " \\\n  ".join(lines)
