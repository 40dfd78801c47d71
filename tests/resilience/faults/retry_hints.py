"""All the ways in which upstreams say when they want to be asked again.

Independent of why they refused. The names of the headers are the vendors' own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate

from gateway.core.formats import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """How an upstream says when it wants to be asked again; all but `ms` in seconds from now."""

    seconds: float | None = None
    """`retry-after` in seconds."""
    date: float | None = None
    """`retry-after` as an HTTP date."""
    ms: float | None = None
    """`retry-after-ms`, in milliseconds."""
    reset: float | None = None
    """The vendor's rate-limit headers: of its two windows only that of tokens is spent, the other
    one starts anew in a second."""
    window: float | None = None
    """The headers of a subscription's window, or (chat) the moment in milliseconds."""
    body: float | None = None
    """`resets_in_seconds` and `resets_at` in the error object."""
    text: float | None = None
    """In the words of the message alone."""


def hint_headers(format: Format, hint: Hint) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    if hint.seconds is not None:
        headers.append(("retry-after", _number(hint.seconds)))
    if hint.date is not None:
        headers.append(("retry-after", formatdate(time.time() + hint.date, usegmt=True)))
    if hint.ms is not None:
        headers.append(("retry-after-ms", _number(hint.ms)))
    if hint.reset is not None:
        headers += _windows(format, hint.reset)
    if hint.window is not None:
        headers += _subscription(format, hint.window)
    if hint != Hint():
        headers.append(("date", formatdate(usegmt=True)))  # dates are measured from it
    return headers


def _windows(format: Format, seconds: float) -> list[tuple[str, str]]:
    windows = (("requests", 50, 12, 1.0), ("tokens", 40_000, 0, seconds))
    headers = []
    for what, limit, remaining, reset in windows:
        if format is Format.MESSAGES:
            start, moment = f"anthropic-ratelimit-{what}", _moment(reset)
            fields = ((f"{start}-limit", limit), (f"{start}-remaining", remaining))
            headers += [*fields, (f"{start}-reset", moment)]
        else:
            fields = (
                (f"x-ratelimit-limit-{what}", limit),
                (f"x-ratelimit-remaining-{what}", remaining),
            )
            headers += [*fields, (f"x-ratelimit-reset-{what}", duration(reset))]
    return [(name, str(value)) for name, value in headers]


def _subscription(format: Format, seconds: float) -> list[tuple[str, str]]:
    at = time.time() + seconds
    match format:
        case Format.CHAT:
            return [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", str(int(at * 1000)))]
        case Format.MESSAGES:
            start = "anthropic-ratelimit-unified"
            return [
                (f"{start}-status", "rejected"),
                (f"{start}-reset", str(int(at))),
                (f"{start}-5h-status", "rejected"),
                (f"{start}-5h-reset", str(int(at))),
                (f"{start}-7d-status", "allowed"),
                (f"{start}-7d-reset", str(int(at) + 86_400)),
            ]
        case Format.RESPONSES:
            return [
                ("x-codex-primary-used-percent", "100"),
                ("x-codex-primary-reset-after-seconds", _number(seconds)),
                ("x-codex-primary-reset-at", str(int(at))),
                ("x-codex-secondary-used-percent", "20"),
                ("x-codex-secondary-reset-after-seconds", _number(seconds + 86_400)),
            ]


def duration(seconds: float) -> str:
    """As rate-limit headers of chat and responses write it: `250ms`, `1s`, `6m0s`, `1h0m0s`."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    above = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{above}{rest:g}s"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(time.time() + seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
