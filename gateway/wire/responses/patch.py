"""The native lane's requests: the client's own body, but for what only another upstream could read.

Clients echo histories in which replies of other formats stand, with reasoning and ids that this
upstream never gave out. It must not know anything else of a body.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.core.target import Target
from gateway.wire import carrier
from gateway.wire.fields import Payload
from gateway.wire.responses.ids import is_generated
from gateway.wire.responses.input_items import restore_reasoning


def patch_prompt(body: Payload, target: Target) -> Payload:
    """A shallow copy for the target. Reasoning of its own that came back through another format is
    as it was written; that of others is left out."""
    patched = body | {"model": target.model}
    items = body.get("input")
    if isinstance(items, list) and any(_is_generated_item(item) for item in items):
        patched["input"] = [known for item in items for known in _restore_item(item, target)]
    return patched


def _is_generated_item(item: Any) -> bool:
    """Whether an item speaks of what was made here."""
    if not isinstance(item, dict):
        return False
    encrypted = item.get("encrypted_content")
    packed = isinstance(encrypted, str) and carrier.is_wrapped(encrypted)
    return packed or is_generated(item.get("id"))


def _restore_item(item: Any, target: Target) -> Iterator[Any]:
    if not _is_generated_item(item):
        yield item
        return
    encrypted = item.get("encrypted_content")
    if isinstance(encrypted, str) and carrier.is_wrapped(encrypted):
        restored = restore_reasoning(carrier.unwrap(encrypted, ""), target)
        if restored is not None:
            del restored["summary"]
            yield _without_id(item) | restored
    elif item.keys() - {"type", "id"}:
        yield _without_id(item)
    else:
        yield item


def _without_id(item: Payload) -> Payload:
    return {name: value for name, value in item.items() if name != "id"}
