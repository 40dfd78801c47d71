"""The accounts of a gateway that runs: their states, and one real request to each on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp

from gateway.admin.units import format_duration, refuses_line
from gateway.config.channel import Channel
from gateway.doctor.findings import Area, Finding
from gateway.runtime import unix_microseconds

_SKEW: Final = 30.0
_DATE_TIMEOUT: Final = 8.0
"""Seconds."""

_REMEDIES: Final = (
    (("401", "403", "credential", "auth"), "replace the credential, then: gateway reload"),
    (("404",), "compare base_url and the upstream's model names in the configuration"),
    (("429", "rate", "quota", "capacity"), "wait, or raise the quota with the upstream"),
    (("tls", "certificate"), "check the host's name and certificate authorities"),
    (
        ("connect", "refused", "resolve", "unreachable", "timed out", "timeout"),
        "check base_url, DNS, the firewall and the channel's proxy",
    ),
)


def check_states(states: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """`states` are those of the admin API."""
    area = Area("accounts")
    for state in states:
        name = f"{state['channel']}/{state['account']}"
        model = f" with {state['model']}" if state["model"] else ""
        what = f"{state['state']}{model}"
        reason = f": {state['reason']}" if state["reason"] else ""
        error = f" ({state['error']})" if state["error"] else ""
        if state["state"] == "healthy":
            area.ok(name, what)
            if refused := state.get("refuses"):
                text = f"the upstream refuses {', '.join(refused)}{model}: it is not sent for a day"
                area.warn(name, text, f"in the channel: {refuses_line(refused)}")
        elif state["state"] == "disabled":
            area.warn(name, f"{what}{reason}", f"gateway account enable {name}")
        else:
            remedy = f"gateway account try {name}; a success resets it"
            area.problem(name, f"{what}{reason}{error}", remedy)
    return area.findings


def check_probes(results: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """`results` are those of `/accounts/CHANNEL/ACCOUNT/try`."""
    area = Area("probe")
    for result in results:
        name = f"{result['channel']}/{result['account']}"
        model = f"{result['model']} ({result['upstream_model']}, {result['format']})"
        if not result["ok"]:
            status = f"{result['status']}: " if result["status"] else ""
            text = f"{model}: {status}{result['error']}"
            remedy = result.get("hint") or remedy_for(f"{result['verdict']} {text}")
            area.problem(name, text, remedy)
        elif result["output_tokens"] is None:
            remedy = "nothing to do: the gateway estimates what such upstreams do not count"
            area.warn(name, f"{model}: replied, but reported no usage", remedy)
        else:
            area.ok(name, f"{model}: replied within {format_duration(result['total_us'])}")
    return area.findings


def remedy_for(error: str) -> str:
    lower = error.lower()
    for words, remedy in _REMEDIES:
        if any(word in lower for word in words):
            return remedy
    return "gateway logs list --status error shows what clients met"


def check_skew(
    channels: Iterable[Channel], now_us: Callable[[], int] = unix_microseconds
) -> list[Finding]:
    """The clock against the Date header of one upstream's answer; HEAD, without a credential."""
    area = Area("clock")
    for channel in channels:
        date = asyncio.run(_date_of(channel))
        if date is None:
            continue
        skew = now_us() / 1e6 - date
        text = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} {channel.name}"
        if abs(skew) > _SKEW:
            area.problem("skew", text, "timedatectl set-ntp true")
        else:
            area.ok("skew", text)
        break
    return area.findings


async def _date_of(channel: Channel) -> float | None:
    timeout = aiohttp.ClientTimeout(total=_DATE_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.head(channel.base_url, proxy=channel.proxy, allow_redirects=False) as response,
        ):
            return parsedate_to_datetime(response.headers["date"]).timestamp()
    except (aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError):
        return None
