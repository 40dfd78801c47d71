"""Request bodies of pathological shapes: what costs more than its size suggests.

A shape is a function of a format and a number `n`; its body has a size that grows linearly with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.core.formats import Format
from tests.support.gateway import request_body
from tests.support.image_files import PNG, encoded, png

Json = dict[str, Any]
Shape = Callable[[Format, int], Json | None]
"""None where the format has no such body."""

SHAPES: Final[dict[str, Shape]] = {}

_MAX_IMAGE: Final = 4 * 2**20
"""Characters of base64 that every format accepts."""
_TEXT_TYPES: Final = {Format.CHAT: "text", Format.MESSAGES: "text", Format.RESPONSES: "input_text"}


def _shape(make: Shape) -> Shape:
    SHAPES[make.__name__] = make
    return make


def with_turns(format: Format, turns: list[Json], **fields: Any) -> Json:
    name = "input" if format is Format.RESPONSES else "messages"
    return request_body(format) | {name: turns} | fields


def function(format: Format, name: str, schema: Json, description: str = "does it") -> Json:
    """The definition of a tool."""
    fields: Json = {"name": name, "description": description}
    match format:
        case Format.CHAT:
            return {"type": "function", "function": fields | {"parameters": schema}}
        case Format.MESSAGES:
            return fields | {"input_schema": schema}
        case Format.RESPONSES:
            return {"type": "function", **fields, "parameters": schema}


def with_schema(format: Format, schema: Json) -> Json:
    """A body whose reply has to fit the schema."""
    form = {"type": "json_schema", "name": "out", "schema": schema}
    match format:
        case Format.CHAT:
            form = {"type": "json_schema", "json_schema": {"name": "out", "schema": schema}}
            return request_body(format, response_format=form)
        case Format.MESSAGES:
            form = {"type": "json_schema", "schema": schema}
            return request_body(format, output_config={"format": form})
        case Format.RESPONSES:
            return request_body(format, text={"format": form})


def call(format: Format, id: str, arguments: Json | None = None) -> Json:
    """The assistant's turn with one call."""
    match format:
        case Format.CHAT:
            fields = {"name": "f", "arguments": "{}"}
            calls = [{"id": id, "type": "function", "function": fields}]
            return {"role": "assistant", "content": None, "tool_calls": calls}
        case Format.MESSAGES:
            block = {"type": "tool_use", "id": id, "name": "f", "input": arguments or {}}
            return {"role": "assistant", "content": [block]}
        case Format.RESPONSES:
            return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}


def result(format: Format, id: str) -> Json:
    """The turn with the result of a call."""
    match format:
        case Format.CHAT:
            return {"role": "tool", "tool_call_id": id, "content": "ok"}
        case Format.MESSAGES:
            block = {"type": "tool_result", "tool_use_id": id, "content": "ok"}
            return {"role": "user", "content": [block]}
        case Format.RESPONSES:
            return {"type": "function_call_output", "call_id": id, "output": "ok"}


def _text(format: Format, text: str, role: str = "user") -> Json:
    kind = "output_text" if (format, role) == (Format.RESPONSES, "assistant") else None
    return {"type": kind or _TEXT_TYPES[format], "text": text}


def _turns(n: int, *roles: str, content: Any = "a") -> list[Json]:
    return [{"role": roles[index % len(roles)], "content": content} for index in range(n)]


@_shape
def user_turns(format: Format, n: int) -> Json:
    return with_turns(format, _turns(n, "user"))


@_shape
def assistant_turns(format: Format, n: int) -> Json:
    return with_turns(format, _turns(n, "assistant"))


@_shape
def alternating_turns(format: Format, n: int) -> Json:
    return with_turns(format, _turns(n, "user", "assistant"))


@_shape
def system_turns(format: Format, n: int) -> Json:
    return with_turns(format, _turns(n, "system"))


@_shape
def inner_system_turns(format: Format, n: int) -> Json:
    return with_turns(format, [*_turns(1, "user"), *_turns(n, "system"), *_turns(1, "assistant")])


@_shape
def system_after_each_turn(format: Format, n: int) -> Json:
    return with_turns(format, _turns(n, "user", "system", "assistant", "system"))


@_shape
def empty_turns(format: Format, n: int) -> Json:
    return with_turns(format, _turns(n, "user", "assistant", content=""))


@_shape
def named_turns(format: Format, n: int) -> Json | None:
    if format is not Format.CHAT:
        return None
    turns = [turn | {"name": f"u{i}"} for i, turn in enumerate(_turns(n, "user"))]
    return with_turns(format, turns)


@_shape
def user_parts(format: Format, n: int) -> Json:
    return with_turns(format, _turns(1, "user", content=[_text(format, "a")] * n))


@_shape
def assistant_parts(format: Format, n: int) -> Json:
    parts = [_text(format, "a", "assistant")] * n
    return with_turns(format, [*_turns(1, "user"), *_turns(1, "assistant", content=parts)])


@_shape
def system_parts(format: Format, n: int) -> Json:
    parts = [_text(format, "a")] * n
    if format is Format.MESSAGES:
        return request_body(format, system=parts)
    return with_turns(format, [*_turns(1, "system", content=parts), *_turns(1, "user")])


@_shape
def cached_parts(format: Format, n: int) -> Json:
    mark = "cache_control" if format is Format.MESSAGES else "prompt_cache_breakpoint"
    kind = {"type": "ephemeral"} if format is Format.MESSAGES else {"mode": "explicit"}
    return with_turns(format, _turns(1, "user", content=[_text(format, "a") | {mark: kind}] * n))


@_shape
def unknown_parts(format: Format, n: int) -> Json:
    parts = [{"type": f"unknown_{index}"} for index in range(n)]
    return with_turns(format, _turns(1, "user", content=parts))


@_shape
def images(format: Format, n: int) -> Json:
    return with_turns(format, _turns(1, "user", content=[image(format, encoded(PNG))] * n))


def image(format: Format, data: str) -> Json:
    """A part with a PNG in base64."""
    url = f"data:image/png;base64,{data}"
    source = {"type": "base64", "media_type": "image/png", "data": data}
    part: Json = {"type": "image", "source": source}
    if format is Format.CHAT:
        part = {"type": "image_url", "image_url": {"url": url}}
    if format is Format.RESPONSES:
        part = {"type": "input_image", "image_url": url}
    return part


@_shape
def calls(format: Format, n: int) -> Json:
    ids = [f"c{index}" for index in range(n)]
    turns = [call(format, id) for id in ids] + [result(format, id) for id in reversed(ids)]
    return with_turns(format, [*_turns(1, "user"), *turns])


@_shape
def calls_of_one_id(format: Format, n: int) -> Json:
    turns = [turn for _ in range(n) for turn in (call(format, "c"), result(format, "c"))]
    return with_turns(format, [*_turns(1, "user"), *turns])


@_shape
def calls_of_numbered_ids(format: Format, n: int) -> Json:
    ids = [f"c_{index + 2}" for index in range(n)] + ["c"] * n
    return with_turns(format, [*_turns(1, "user"), *(call(format, id) for id in ids)])


@_shape
def results_without_calls(format: Format, n: int) -> Json:
    return with_turns(format, [result(format, f"c{index}") for index in range(n)])


@_shape
def results_of_many_parts(format: Format, n: int) -> Json:
    last = result(format, "c")
    parts = [_text(format, "a")] * n
    if format is Format.MESSAGES:
        last["content"][0]["content"] = parts
    else:
        last["output" if format is Format.RESPONSES else "content"] = parts
    return with_turns(format, [*_turns(1, "user"), call(format, "c"), last])


@_shape
def large_arguments(format: Format, n: int) -> Json:
    arguments = {f"k{index}": [index] for index in range(n)}
    turn = call(format, "c", arguments)
    return with_turns(format, [*_turns(1, "user"), turn, result(format, "c")])


@_shape
def reasoning_turns(format: Format, n: int) -> Json:
    turn: Json = {"role": "assistant", "content": "a", "reasoning_content": "because"}
    if format is Format.MESSAGES:
        block = {"type": "thinking", "thinking": "because", "signature": "gw1.eyJvIjoiYSJ9"}
        turn = {"role": "assistant", "content": [block, _text(format, "a")]}
    if format is Format.RESPONSES:
        turn = {"type": "reasoning", "id": "rs_gw1_a", "summary": []}
        turn["encrypted_content"] = "gw1.eyJvIjoiYSJ9"
    return with_turns(format, [*_turns(1, "user"), *[turn] * n])


def _choice(format: Format, names: list[str]) -> Json | None:
    refs: list[Json] = [{"type": "function", "name": name} for name in names]
    if format is Format.MESSAGES:
        return None
    if format is Format.RESPONSES:
        return {"type": "allowed_tools", "mode": "auto", "tools": refs}
    refs = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": refs}}


@_shape
def tools(format: Format, n: int) -> Json:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    definitions = [function(format, f"tool_{index}", schema) for index in range(n)]
    return request_body(format, tools=definitions)


@_shape
def allowed_tools(format: Format, n: int) -> Json:
    names = [f"tool_{index}" for index in range(n)]
    definitions = [function(format, name, {"type": "object"}) for name in names]
    choice = _choice(format, names)
    return request_body(format, tools=definitions) | ({"tool_choice": choice} if choice else {})


@_shape
def tools_of_one_name(format: Format, n: int) -> Json:
    return request_body(format, tools=[function(format, "same", {"type": "object"})] * n)


@_shape
def custom_tools(format: Format, n: int) -> Json | None:
    if format is Format.MESSAGES:
        return None
    fields = [{"name": f"tool_{index}", "description": "d"} for index in range(n)]
    if format is Format.CHAT:
        return request_body(format, tools=[{"type": "custom", "custom": each} for each in fields])
    return request_body(format, tools=[{"type": "custom"} | each for each in fields])


@_shape
def namespace_of_many_tools(format: Format, n: int) -> Json | None:
    """The description is as long as all tools together."""
    if format is not Format.RESPONSES:
        return None
    inner = [function(format, f"tool_{index}", {"type": "object"}) for index in range(n)]
    space = {"type": "namespace", "name": "n", "description": "d" * 50 * n, "tools": inner}
    return request_body(format, tools=[space])


@_shape
def namespace_of_many_fields(format: Format, n: int) -> Json | None:
    if format is not Format.RESPONSES:
        return None
    inner = [function(format, f"tool_{index}", {"type": "object"}) for index in range(n)]
    fields = {f"field_{index}": index for index in range(n)}
    space = {"type": "namespace", "name": "n", "description": "d", "tools": inner} | fields
    return request_body(format, tools=[space])


@_shape
def namespaces_of_one_name(format: Format, n: int) -> Json | None:
    if format is not Format.RESPONSES:
        return None
    inner = function(format, "f", {"type": "object"})
    return request_body(format, tools=[{"type": "namespace", "name": "n", "tools": [inner]}] * n)


def _references(n: int, target: Json) -> Json:
    properties = {f"p{index}": {"$ref": "#/$defs/t"} for index in range(n)}
    return {"type": "object", "properties": properties, "$defs": {"t": target}}


def _enum(n: int) -> Json:
    return {"type": "string", "enum": [f"value {index}" for index in range(n)]}


def _wide(n: int) -> Json:
    properties = {f"p{index}": {"type": "string"} for index in range(n)}
    return {"type": "object", "properties": properties, "required": [*properties]}


def _branches(n: int, word: str) -> Json:
    """Each branch has a property of its own, and another schema for the same one."""
    branches = [
        {"type": "object", "properties": {f"p{i}": {"type": "string"}, "same": {"const": i}}}
        | {"required": [f"p{i}"]}
        for i in range(n)
    ]
    return {"type": "object", "properties": {}, word: branches}


def _annotated_references(n: int, target: Json) -> Json:
    """References that cannot stay references, because of the keyword next to them."""
    schema = _references(n, target)
    for inner in schema["properties"].values():
        inner["minLength"] = 1
    return schema


def _reference_into_list(n: int) -> Json:
    items = [{"type": "string"} for _ in range(n)]
    properties = {f"p{i}": {"$ref": f"#/$defs/t/anyOf/{i}", "minLength": 1} for i in range(n)}
    return {"type": "object", "properties": properties, "$defs": {"t": {"anyOf": items}}}


def _reference_chain(n: int) -> Json:
    defs: Json = {f"s{i}": {"$ref": f"#/$defs/s{i + 1}", "title": "t"} for i in range(n)}
    return _wide(1) | {"$ref": "#/$defs/s0", "$defs": defs | {f"s{n}": {"type": "object"}}}


def _doubling(n: int) -> Json:
    defs: Json = {"s0": {"type": "string"}}
    for index in range(1, n):
        parts = [{"$ref": f"#/$defs/s{index - 1}"}, {"$ref": f"#/$defs/s{max(0, index - 2)}"}]
        defs[f"s{index}"] = {"allOf": parts}
    return {"type": "object", "properties": {"a": {"$ref": f"#/$defs/s{n - 1}"}}, "$defs": defs}


def _long_pointer(n: int) -> Json:
    return {"type": "object", "anyOf": [{"$ref": "#" + "/a" * n}]}


def _composed(make: Callable[[int], Json]) -> Callable[[int], Json]:
    """With a choice at the top, which every upstream but those of responses has to resolve."""

    def composed(n: int) -> Json:
        schema = make(n)
        branches = [{"$ref": "#/$defs/whole"}, {"type": "object", "properties": {}}]
        defs = schema.pop("$defs", {})
        return {"anyOf": branches, "$defs": defs | {"whole": schema}}

    return composed


def _names(n: int) -> Json:
    """A property of its own name for each branch, all required by all."""
    branches = [{"type": "object", "required": [f"p{i}"]} for i in range(n)]
    return _wide(n) | {"anyOf": branches}


def _all_required(n: int) -> Json:
    return {"type": "object", "allOf": [{"required": [f"p{i}"]} for i in range(n)]}


def _deep(n: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(min(n, 100)):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


_SCHEMAS: Final[dict[str, Callable[[int], Json]]] = {
    "wide": _wide,
    "enum": lambda n: {"type": "object", "properties": {"a": _enum(n)}},
    "references_to_enum": lambda n: _references(n, _enum(n)),
    "references_to_object": lambda n: _references(n, _wide(n)),
    "annotated_references_to_enum": lambda n: _annotated_references(n, _enum(n)),
    "annotated_references_to_object": lambda n: _annotated_references(n, _wide(n)),
    "references_into_list": _reference_into_list,
    "any_of": lambda n: _branches(n, "anyOf"),
    "one_of": lambda n: _branches(n, "oneOf"),
    "all_of": lambda n: _branches(n, "allOf"),
    "all_of_required": _all_required,
    "any_of_required": _names,
    "chain": _reference_chain,
    "doubling": _doubling,
    "long_pointer": _long_pointer,
    "composed_references": _composed(lambda n: _annotated_references(n, _wide(n))),
    "composed_enums": _composed(lambda n: _annotated_references(n, _enum(n))),
    "composed_list": _composed(_reference_into_list),
    "unknown_words": lambda n: _wide(1) | {f"x-{index}": [index] for index in range(n)},
    "deep": _deep,
}


def _strict(format: Format) -> Json:
    return {} if format is Format.CHAT else {"strict": True}


def _add_schema_shapes(name: str, make: Callable[[int], Json]) -> None:
    def tool(format: Format, n: int) -> Json:
        return request_body(format, tools=[function(format, "f", make(n)) | _strict(format)])

    SHAPES[f"tool_schema_{name}"] = tool
    SHAPES[f"output_schema_{name}"] = lambda format, n: with_schema(format, make(n))


for _name, _make in _SCHEMAS.items():
    _add_schema_shapes(_name, _make)


@_shape
def schemas_of_many_tools(format: Format, n: int) -> Json:
    schema = _annotated_references(8, _enum(8)) | {"anyOf": [{"$ref": "#/$defs/t"}]}
    return request_body(format, tools=[function(format, f"t{i}", schema) for i in range(n // 8)])


@_shape
def unknown_fields(format: Format, n: int) -> Json:
    return request_body(format, **{f"field_{index}": index for index in range(n)})


@_shape
def unknown_fields_of_turns(format: Format, n: int) -> Json:
    turns = [turn | {f"field_{i}": i} for i, turn in enumerate(_turns(n, "user"))]
    return with_turns(format, turns)


@_shape
def stops(format: Format, n: int) -> Json | None:
    if format is Format.RESPONSES:
        return None
    name = "stop" if format is Format.CHAT else "stop_sequences"
    return request_body(format, **{name: [f"stop {index}" for index in range(n)]})


@_shape
def metadata(format: Format, n: int) -> Json:
    return request_body(format, metadata={f"key_{index}": "value" for index in range(n)})


@_shape
def long_text(format: Format, n: int) -> Json:
    return with_turns(format, _turns(1, "user", content="one, {two} [three]\n" * n))


@_shape
def escaped_text(format: Format, n: int) -> Json:
    return with_turns(format, _turns(2, "user", "assistant", content='"\\\n' * n))


@_shape
def citations(format: Format, n: int) -> Json | None:
    part: Json = _text(format, "a", "assistant")
    if format is Format.CHAT:
        return None
    if format is Format.MESSAGES:
        part["citations"] = [{"type": "char_location", "cited_text": "a"}] * n
    else:
        part["annotations"] = [{"type": "url_citation", "url": "http://a"}] * n
    return with_turns(format, [*_turns(1, "user"), *_turns(1, "assistant", content=[part])])


@_shape
def domains(format: Format, n: int) -> Json | None:
    names = [f"host{index}.example" for index in range(n)]
    if format is Format.CHAT:
        return None
    if format is Format.MESSAGES:
        search: Json = {"type": "web_search_20250305", "name": "web_search"}
        return request_body(format, tools=[search | {"allowed_domains": names}])
    search = {"type": "web_search", "filters": {"allowed_domains": names}}
    return request_body(format, tools=[search])


def agent_session(format: Format, turns: int, tools: int, image_bytes: int) -> Json:
    """The request of an agent that has worked for long, with as many calls as there are turns."""
    schema = _wide(20)
    for inner in schema["properties"].values():
        inner |= {"description": "A path below the root of the project.", "enum": ["a", "b", "c"]}
    session: list[Json] = [{"role": "user", "content": "Fix the failing test."}]
    for number in range(turns // 2):
        session += [call(format, f"call_{number}"), result(format, f"call_{number}")]
    count = -(-image_bytes // _MAX_IMAGE)
    part = image(format, encoded(png(padding=image_bytes // count * 3 // 4)))
    session += _turns(1, "user", content=[part] * count)
    definitions = [function(format, f"tool_{number}", schema) for number in range(tools)]
    return with_turns(format, session, tools=definitions)


def mixture(format: Format, names: list[str], n: int) -> Json:
    """One body of several shapes, with the turns and the tools of all of them."""
    mixed: Json = {}
    for name in names:
        for field, value in (SHAPES[name](format, n) or {}).items():
            before = mixed.get(field)
            if not isinstance(before, list):
                mixed[field] = value
            elif isinstance(value, list):
                mixed[field] = before + value
    return request_body(format) | mixed
