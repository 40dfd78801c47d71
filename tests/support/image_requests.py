"""Requests with images, in every format, and the images of requests that arrived."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.core.formats import Format
from tests.support.gateway import request_body
from tests.support.image_files import encoded

Json = dict[str, Any]


def image_part(format: Format, image: bytes | str, media_type: str = "image/png") -> Json:
    """Of a file, or of an address."""
    url = image if isinstance(image, str) else f"data:{media_type};base64,{encoded(image)}"
    match format:
        case Format.CHAT:
            return {"type": "image_url", "image_url": {"url": url}}
        case Format.RESPONSES:
            return {"type": "input_image", "image_url": url}
        case Format.MESSAGES if isinstance(image, str):
            return {"type": "image", "source": {"type": "url", "url": image}}
        case Format.MESSAGES:
            source = {"type": "base64", "media_type": media_type, "data": encoded(image)}
            return {"type": "image", "source": source}


def image_request(format: Format, *parts: Json, in_result: bool = False, **fields: Any) -> Json:
    """The parts in a message of the user, or in the result of a tool."""
    turns: list[Json]
    name = "input" if format is Format.RESPONSES else "messages"
    arguments = {"name": "look", "arguments": "{}"}
    match format:
        case _ if not in_result:
            turns = [{"role": "user", "content": list(parts)}]
        case Format.CHAT:
            call = {"id": "call_1", "type": "function", "function": arguments}
            result = {"role": "tool", "tool_call_id": "call_1", "content": list(parts)}
            turns = [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
        case Format.MESSAGES:
            call = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "call_1", "content": list(parts)}
            turns = [
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
        case Format.RESPONSES:
            call = {"type": "function_call", "call_id": "call_1", **arguments}
            result = {"type": "function_call_output", "call_id": "call_1", "output": list(parts)}
            turns = [call, result]
    if in_result:
        turns.insert(0, {"role": "user", "content": "Look"})
    return request_body(format) | {name: turns} | fields


def sent_images(body: Any) -> list[str]:
    """The images of a request of any format, as data URIs or addresses."""
    return list(_sent_images(body))


def _sent_images(value: Any) -> Iterator[str]:
    match value:
        case {"type": "image_url", "image_url": {"url": str(url)}} | {
            "type": "input_image",
            "image_url": str(url),
        }:
            yield url
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}:
            yield f"data:{kind};base64,{data}"
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            yield url
        case dict():
            for inner in value.values():
                yield from _sent_images(inner)
        case list():
            for inner in value:
                yield from _sent_images(inner)
        case _:
            pass
