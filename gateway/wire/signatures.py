"""How reasoning travels through clients of another format. It must not judge who may have it back.

Clients echo what signs their history byte by byte and look into none of it. So a signature that is
foreign to the client's format goes out as one string, which names the format and the origin that it
belongs to, and is taken apart when it returns: `gw1.` and base64url of a JSON object. Nothing in it
is secret or trusted: it reaches nobody but the upstream that could always be told it directly.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Thinking
from gateway.core.target import Target

_PREFIX: Final = "gw1."
_UNKNOWN_ORIGIN: Final = "?"
"""The origin of what cannot be read: no target has it."""


def wrap(signature: ProviderData | None, origin: str, *, redacted: bool = False) -> str:
    """One string that stands for the signature; None is reasoning that nobody signed."""
    carried: dict[str, Any] = {"o": origin}
    if signature is not None:
        carried |= {"f": signature.format, "p": signature.data}
    if redacted:
        carried["r"] = 1
    return _PREFIX + urlsafe_b64encode(orjson.dumps(carried)).decode().rstrip("=")


def is_wrapped(text: str) -> bool:
    return text.startswith(_PREFIX)


def unwrap(wrapped: str, text: str) -> Thinking:
    """The reasoning that a packed string and the readable text beside it stand for. What cannot be
    read belongs to nobody."""
    try:
        code = wrapped.removeprefix(_PREFIX)
        carried = orjson.loads(urlsafe_b64decode(code + "=" * (-len(code) % 4)))
        signature = ProviderData(Format(carried["f"]), carried["p"]) if "f" in carried else None
        origin = str(carried["o"])
    except (ValueError, KeyError, TypeError):
        return Thinking(text, origin=_UNKNOWN_ORIGIN)
    return Thinking(text, signature, redacted="r" in carried, origin=origin)


def signature_for(thinking: Thinking, format: Format, target: Target) -> Any | None:
    """The signature as the target's own format has it, where this reasoning may go back there;
    else None. Reasoning that never left its format is not asked where it came from."""
    signature = thinking.signature
    if signature is None or signature.format is not format:
        return None
    if thinking.origin is not None and thinking.origin != target.origin:
        return None
    return signature.data
