"""The service tier that a body of any format states."""

from __future__ import annotations

from typing import Final

from gateway.wire.json.fields import Payload, lenient_object

FAST: Final = "fast"
"""The tier of messages whose `speed` is that."""


def stated_tier(body: Payload) -> str | None:
    """Returns the tier of a request, or of a reply: in the body, or in its `usage`. None where the
    upstream chooses it."""
    usage = lenient_object(body.get("usage"))
    if FAST in (body.get("speed"), usage.get("speed")):
        return FAST
    tier = usage.get("service_tier") or body.get("service_tier")
    return tier if isinstance(tier, str) and tier != "auto" else None
