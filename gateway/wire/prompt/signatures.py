"""Carries signed reasoning through clients of another format.

Clients return the signature of reasoning unchanged. A signature of another format is wrapped in a
string with its format and origin, and unwrapped when it returns: `gw1.` and base64url of a JSON
object. Nothing in it is secret, and nothing is trusted: it only goes to upstreams that the client
could send the same content to.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Any, Final

import orjson

from gateway.core.events import ProofLoss
from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Thinking
from gateway.core.prompt import Turn
from gateway.core.target import Target
from gateway.wire.json.limits import load_json

_PREFIX: Final = "gw1."
_UNKNOWN_ORIGIN: Final = "?"
"""The origin of what cannot be read: no target has it."""


def wrap(signature: ProviderData | None, origin: str, *, redacted: bool = False) -> str:
    """One string for the signature; None is unsigned reasoning."""
    fields: dict[str, Any] = {"o": origin}
    if signature is not None:
        fields |= {"f": signature.format, "p": signature.data}
    if redacted:
        fields["r"] = 1
    return _PREFIX + urlsafe_b64encode(orjson.dumps(fields)).decode().rstrip("=")


def is_wrapped(text: str) -> bool:
    return text.startswith(_PREFIX)


def unwrap(wrapped: str, text: str) -> Thinking:
    """The reasoning of a wrapped string and the text that came with it; what cannot be read gets an
    unknown origin."""
    try:
        code = wrapped.removeprefix(_PREFIX)
        fields = load_json(urlsafe_b64decode(code + "=" * (-len(code) % 4)))
        signature = ProviderData(Format(fields["f"]), fields["p"]) if "f" in fields else None
        origin = str(fields["o"])
    except (ValueError, KeyError, TypeError):
        return Thinking(text, origin=_UNKNOWN_ORIGIN)
    return Thinking(text, signature, redacted="r" in fields, origin=origin)


def lost_proofs(turns: Iterable[Turn], format: Format, target: Target) -> set[ProofLoss]:
    """Why signed reasoning of the turns does not go to the target of that format. Of reasoning in
    the target's own format the account is taken to be another one."""
    return {
        ProofLoss.ACCOUNT_SWITCHED if part.signature.format is format else ProofLoss.MODEL_SWITCHED
        for turn in turns
        for part in turn.parts
        if type(part) is Thinking
        and part.signature is not None
        and signature_for(part, format, target) is None
    }


def signature_for(thinking: Thinking, format: Format, target: Target) -> Any | None:
    """The signature as the target's format has it, where this reasoning may go to the target; else
    None. Reasoning without an origin never left its format."""
    signature = thinking.signature
    if signature is None or signature.format is not format:
        return None
    if thinking.origin is not None and thinking.origin != target.origin:
        return None
    return signature.data
