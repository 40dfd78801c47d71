"""When an upstream wants to be asked again, as the headers of its refusal tell it.

It must not know the time: what is told as a date is measured from the answer's own `date` header,
so that no clock need be right. Header names are in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_MAX_SECONDS: Final = 10**9
_MIN_UNIX_TIME: Final = 10**8
"""Bare numbers from here on are no lengths of time but Unix times, in seconds or milliseconds."""
_MIN_UNIX_MILLISECONDS: Final = 10**11

_RESET: Final = re.compile(r"[a-z-]*ratelimit[a-z-]*reset[a-z-]*|x-[a-z-]+-reset-after-seconds")
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the upstream names outright: `retry-after-ms`, else `retry-after` in seconds or
    as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (seconds := parse_seconds(headers.get(name))) is not None:
            return seconds * scale
    return _from_now(_http_date(headers.get("retry-after")), headers)


def reset_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until every limit that is used up has room again, by the rate limit headers: of each
    that says `reset`, its twin says how much remains; one without a twin counts as used up."""
    times = [
        _seconds_until(headers[name], headers)
        for name in headers
        if _RESET.fullmatch(name) and _is_used_up(name, headers)
    ]
    return max((time for time in times if time is not None and time > 0), default=None)


def parse_seconds(value: object) -> float | None:
    """A length of time as a bare number or its text; None where it is none that makes sense."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _MAX_SECONDS else None


def _is_used_up(name: str, headers: Mapping[str, str]) -> bool:
    window, found, _ = name.rpartition("reset-after-seconds")
    if found:
        used = parse_seconds(headers.get(f"{window}used-percent"))
        return used is None or used >= 100
    remaining = parse_seconds(headers.get(name.replace("reset", "remaining")))
    return remaining is None or remaining == 0


def _seconds_until(value: str, headers: Mapping[str, str]) -> float | None:
    """Seconds, however they are spelled: `6m0s`, `20ms`, `1.5`, a Unix time, a date."""
    if _DURATION.fullmatch(value):
        return sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(value))
    try:
        number = float(value)
    except ValueError:
        return _from_now(_date(value), headers)
    if number >= _MIN_UNIX_MILLISECONDS:
        number /= 1000
    if not _MIN_UNIX_TIME <= number < _MIN_UNIX_MILLISECONDS:
        return parse_seconds(number)
    return _from_now(datetime.fromtimestamp(number, UTC), headers)


def _from_now(then: datetime | None, headers: Mapping[str, str]) -> float | None:
    now = _http_date(headers.get("date"))
    if then is None or now is None:
        return None
    return max(0.0, (then - now).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return _http_date(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _http_date(value: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(value or "")
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
