"""What vendors refuse in a well-formed request, such as reasoning of another model."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256

from gateway.simulator.json_fields import Body, objects, strings


def sign(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def refusals(body: Body) -> Iterator[str]:
    """Why. The signature of omitted thinking cannot be checked."""
    turns = objects(body.get("messages"))
    for block in (each for turn in turns for each in objects(turn.get("content"))):
        if (text := block.get("thinking")) and block.get("signature") != sign(str(text)):
            yield "Invalid `signature` in `thinking` block"
        if any(each.get("encrypted_index") == "" for each in objects(block.get("citations"))):
            yield "Invalid `encrypted_index` in a citation"
    for item in objects(body.get("input")):
        text = "".join(str(part.get("text")) for part in objects(item.get("summary")))
        sealed = item.get("encrypted_content") if item.get("type") == "reasoning" else None
        if sealed not in (None, sign(text)):
            yield "The encrypted content could not be verified."
    encrypted = "reasoning.encrypted_content" in strings(body.get("include"))
    if encrypted and str(body.get("model")).startswith("beta-4."):
        yield "Encrypted content is not supported with this model."
