"""Results of moderation, which chat has as a list of results and responses as one of them."""

from __future__ import annotations

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects


def moderation_results(data: ProviderData, format: Format) -> Payload | None:
    """The field `moderation` of a reply as a format has it; None where it has none, or more than
    one result of its input or output."""
    if data.format is format:
        return lenient_object(data.data)
    if Format.MESSAGES in (data.format, format):
        return None
    convert = _to_list if format is Format.CHAT else _of_list
    fields = lenient_object(data.data)
    sides = {name: convert(lenient_object(each)) for name, each in fields.items()}
    return sides if all(sides.values()) else None


def _to_list(result: Payload) -> Payload:
    if result.get("type") != "moderation_result":  # an error is alike in both
        return result
    return {"type": "moderation_results", "model": result.get("model"), "results": [result]}


def _of_list(results: Payload) -> Payload | None:
    if results.get("type") != "moderation_results":
        return results
    found = lenient_objects(results.get("results"))
    return found[0] if len(found) == 1 else None
