"""Request bodies that are cheap to send and were once expensive to translate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from tests.support.image_files import encoded, gif
from tests.support.image_requests import image_part

Body = dict[str, Any]

MAX_BODY: Final = 64 * 2**20


def _turn(format: Format, content: Any) -> Body:
    return {"role": "user", "content": content}


def body(format: Format, turns: list[Any] | None = None, **fields: Any) -> Body:
    """A request with these turns; the model is the sender's to fill in."""
    turns = turns or [_turn(format, "Hello")]
    match format:
        case Format.CHAT:
            named: Body = {"messages": turns}
        case Format.MESSAGES:
            named = {"messages": turns, "max_tokens": 100}
        case Format.RESPONSES:
            named = {"input": turns}
    return named | fields


def function(format: Format, name: str, schema: Body, description: str = "") -> Body:
    """A tool of a format."""
    match format:
        case Format.CHAT:
            described = {"name": name, "description": description, "parameters": schema}
            return {"type": "function", "function": described}
        case Format.MESSAGES:
            return {"name": name, "description": description, "input_schema": schema}
        case Format.RESPONSES:
            return {
                "type": "function",
                "name": name,
                "description": description,
                "parameters": schema,
            }


def with_schema(format: Format, schema: Body) -> Body:
    """A request for an answer of that form."""
    match format:
        case Format.CHAT:
            wanted = {"name": "answer", "schema": schema, "strict": True}
            return body(format, response_format={"type": "json_schema", "json_schema": wanted})
        case Format.MESSAGES:
            return body(format, output_config={"format": {"type": "json_schema", "schema": schema}})
        case Format.RESPONSES:
            wanted = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
            return body(format, text={"format": wanted})


def many_turns(format: Format) -> Body:
    turns = [_turn(format, "x") for _ in range(1_900_000)]
    return body(format, turns)


def system_turns(format: Format) -> Body:
    return body(format, [{"role": "system", "content": f"rule {n}"} for n in range(50_000)])


def text_blocks(format: Format) -> Body:
    kind = "input_text" if format is Format.RESPONSES else "text"
    blocks = [{"type": kind, "text": f"block {n}"} for n in range(60_000)]
    return body(format, [_turn(format, blocks)])


def references_into_a_list(format: Format) -> Body:
    schema = {
        "type": "object",
        "properties": {f"p{n}": {"$ref": f"#/$defs/list/anyOf/{n * 49}"} for n in range(2_000)},
        "$defs": {"list": {"anyOf": [{"const": n} for n in range(100_000)]}},
    }
    return body(format, tools=[function(format, "find", schema)])


def references_to_many_properties(format: Format) -> Body:
    many = {f"p{n}": {"type": "string"} for n in range(100_000)}
    schema = {
        "type": "object",
        "properties": {f"r{n}": {"$ref": "#/$defs/many"} for n in range(2_000)},
        "$defs": {"many": {"type": "object", "properties": many}},
    }
    return body(format, tools=[function(format, "find", schema)])


def references_to_an_enum(format: Format) -> Body:
    schema = {
        "type": "object",
        "properties": {f"r{n}": {"$ref": "#/$defs/word"} for n in range(6_000)},
        "$defs": {"word": {"type": "string", "enum": [f"word-{n:012}" for n in range(15_000)]}},
    }
    return with_schema(format, schema)


def allowed_tools(format: Format) -> Body:
    schema: Body = {"type": "object", "properties": {}}
    names = [f"tool_{n}" for n in range(15_000)]
    tools = [function(format, name, schema) for name in names]
    if format is Format.MESSAGES:
        return body(format, tools=tools)
    allowed = [{"type": "function", "name": name} for name in names]
    if format is Format.CHAT:
        allowed = [{"type": "function", "function": {"name": name}} for name in names]
        choice: Body = {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": allowed},
        }
    else:
        choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    return body(format, tools=tools, tool_choice=choice)


def namespace_description(format: Format) -> Body:
    schema: Body = {"type": "object", "properties": {}}
    tools = [function(format, f"tool_{n}", schema) for n in range(5_000)]
    if format is not Format.RESPONSES:
        return body(format, tools=tools)
    space = {"type": "namespace", "name": "all", "description": "d" * 400_000, "tools": tools}
    return body(format, tools=[space])


def deep(format: Format) -> Body:
    nested: Any = {"type": "string"}
    for _ in range(60):
        nested = {"type": "object", "properties": {"p": nested}}
    return body(format, tools=[function(format, f"tool_{n}", nested) for n in range(500)])


def wide(format: Format) -> Body:
    return body(format, metadata={f"k{n}": "v" for n in range(1_000_000)})


def escapes(format: Format) -> Body:
    return body(format, [_turn(format, '\x01"\\' * 5_000_000)])


def large_texts(format: Format) -> Body:
    return body(format, [_turn(format, "word " * 400_000) for _ in range(30)])


def _images(format: Format, *images: bytes | str) -> Body:
    """Of files, or of base64."""
    parts = [image_part(format, b"", "image/gif") for _ in images]
    for part, image in zip(parts, images, strict=True):
        data = image if isinstance(image, str) else encoded(image)
        url = f"data:image/gif;base64,{data}"
        match format:
            case Format.CHAT:
                part["image_url"]["url"] = url
            case Format.MESSAGES:
                part["source"]["data"] = data
            case Format.RESPONSES:
                part["image_url"] = url
    return body(format, [_turn(format, parts)])


def animations(format: Format) -> Body:
    """Of frames and comments of a few bytes, which are read one by one."""
    return _images(format, gif(2, blocks=200_000), *[gif(comments=600_000)] * 10)


def small_animations(format: Format) -> Body:
    """Small enough that no thread reads them."""
    return _images(format, *[gif(comments=150, blocks=90)] * 90)


def damaged_base64(format: Format) -> Body:
    return _images(format, "A " * 14_000_000, "A\u00e9" * 5_000_000)


def countless_images(format: Format) -> Body:
    return _images(format, *["iVBO"] * 300_000)


SHAPES: Final[Mapping[str, Callable[[Format], Body]]] = {
    shape.__name__: shape
    for shape in (
        *(system_turns, text_blocks, many_turns),
        *(references_into_a_list, references_to_many_properties, references_to_an_enum),
        *(allowed_tools, namespace_description),
        *(deep, wide, escapes, large_texts),
        *(animations, small_animations, damaged_base64, countless_images),
    )
}


def write(shape: str, format: Format, model: str, **fields: Any) -> bytes:
    """The JSON text of a shape, addressed to a model, at most `MAX_BODY` long."""
    raw = orjson.dumps(SHAPES[shape](format) | {"model": model} | fields)
    assert len(raw) <= MAX_BODY, f"{shape} has {len(raw)} bytes"
    return raw
