"""The documented fields and parts of each format's requests, those of compatible servers included.

Independent of the gateway: `tests/conformance/test_losses.py` says what becomes of each.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, NamedTuple

from gateway.core.formats import Format

Payload = dict[str, Any]


class Field(NamedTuple):
    """`where` a request has `after`: `top` (fields of the request), `tools`, `turns` (whole
    messages or items), `user`, `assistant` or `result` (a part of such a message). `before` is the
    same without what the field says; None where there is nothing without it."""

    where: str
    after: Any
    before: Any = None


SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PNG: Final = "iVBORw0KGgo="
PDF: Final = "JVBERi0x"
_CHAT_PDF: Final = {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"}
_ADDRESS: Final = "https://a.example/1"


def part(type_: str, **fields: Any) -> Payload:
    return {"type": type_, **fields}


def varied(where: str, whole: Payload, **fields: Any) -> dict[str, Field]:
    """One field of `whole` each, by its path."""
    name = whole.get("type") or whole.get("role") or next(iter(whole))
    return {
        f"{name}.{field}": Field(where, whole | {field: value}, whole)
        for field, value in fields.items()
    }


def top(**fields: Any) -> dict[str, Field]:
    return {name: Field("top", {name: value}) for name, value in fields.items()}


def _chat_tool(**fields: Any) -> Payload:
    return part("function", function={"name": "g", "parameters": SCHEMA, **fields})


def _chat_form(**fields: Any) -> Payload:
    schema = {"name": "a", "schema": SCHEMA, **fields}
    return {"response_format": part("json_schema", json_schema=schema)}


_CHAT: Final = {
    **top(
        temperature=0.5,
        top_p=0.5,
        top_k=3,
        seed=7,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        n=2,
        logprobs=True,
        logit_bias={"7": 1},
        max_tokens=200,
        max_completion_tokens=200,
        stop=["END"],
        reasoning_effort="high",
        reasoning={"effort": "low"},
        thinking={"type": "enabled", "budget_tokens": 2000},
        enable_thinking=True,
        verbosity="low",
        user="ann",
        safety_identifier="ann",
        metadata={"run": "7"},
        store=True,
        service_tier="flex",
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        prompt_cache_options={"mode": "implicit"},
        moderation={"model": "m"},
        modalities=["text", "audio"],
        audio={"voice": "a", "format": "wav"},
        prediction=part("content", content="red"),
        parallel_tool_calls=False,
        tool_choice="required",
        web_search_options={"search_context_size": "low"},
        response_format={"type": "json_object"},
        a_field_of_tomorrow=1,
    ),
    "schema": Field("top", _chat_form()),
    "schema.description": Field("top", _chat_form(description="red"), _chat_form()),
    "schema.strict": Field(
        "top", _chat_form(strict=True, schema={"type": "object"}), _chat_form(schema={})
    ),
    "function": Field("tools", _chat_tool()),
    "function.description": Field("tools", _chat_tool(description="red"), _chat_tool()),
    "function.strict": Field("tools", _chat_tool(strict=True), _chat_tool()),
    "function.tomorrow": Field("tools", _chat_tool(tomorrow=0), _chat_tool()),
    "custom": Field("tools", part("custom", custom={"name": "h"})),
    "image": Field("user", part("image_url", image_url={"url": _ADDRESS})),
    **varied("user", part("image_url", image_url={"url": _ADDRESS}), tomorrow=1),
    "image.detail": Field(
        "user",
        part("image_url", image_url={"url": _ADDRESS, "detail": "low"}),
        part("image_url", image_url={"url": _ADDRESS}),
    ),
    "file": Field("user", part("file", file=_CHAT_PDF)),
    "file.filename": Field(
        "user", part("file", file=_CHAT_PDF), part("file", file=_CHAT_PDF | {"filename": "b.pdf"})
    ),
    **varied("user", part("file", file=_CHAT_PDF), tomorrow=1),
    "file_id": Field("user", part("file", file={"file_id": "file_1"})),
    "input_audio": Field("user", part("input_audio", input_audio={"data": PNG, "format": "wav"})),
    "a part of tomorrow": Field("user", part("tomorrow")),
    **varied("user", part("text", text="red"), cache_control=part("ephemeral"), tomorrow=1),
    **varied(
        "turns",
        {"role": "user", "content": "red"},
        name="ann",
        tomorrow=1,
    ),
    **varied(
        "turns",
        {"role": "assistant", "content": "red"},
        name="bob",
        refusal="No.",
        audio={"id": "audio_1"},
        reasoning_content="Hm.",
        reasoning_details=[part("reasoning.text", text="Hm.", signature="c2ln")],
        annotations=[part("url_citation", url_citation={"url": _ADDRESS})],
        function_call={"name": "f", "arguments": "{}"},
        images=[part("image_url", image_url={"url": _ADDRESS})],
        tomorrow=1,
    ),
    "result.tomorrow": Field("result", {"tomorrow": 1}),
    "image_url.inside": Field(
        "user",
        part("image_url", image_url={"url": _ADDRESS, "tomorrow": 1}),
        part("image_url", image_url={"url": _ADDRESS}),
    ),
    "developer": Field("turns", {"role": "developer", "content": "red"}),
}


def _use(**fields: Any) -> Payload:
    return part("tool_use", id="c8", name="f", input={}, **fields)


def _ran(kind: str, name: str, result: Any, **fields: Any) -> Field:
    call = part(kind, id="srvtoolu_1", name=name, input={"code": "1"}, **fields)
    kind = "mcp_tool_result" if kind == "mcp_tool_use" else f"{name}_tool_result"
    answer = part(kind, tool_use_id="srvtoolu_1", content=result)
    return Field("turns", {"role": "assistant", "content": [call, answer]})


_SEARCH_RESULT: Final = part(
    "search_result", source=_ADDRESS, title="A", content=[part("text", text="red")]
)
_PDF_BLOCK: Final = part("document", source=part("base64", media_type="application/pdf", data=PDF))
_FETCHED: Final = part(
    "web_fetch_result",
    url=_ADDRESS,
    content=part("document", source=part("text", media_type="text/plain", data="found")),
)
_EXECUTED: Final = part(
    "code_execution_result", stdout="found", stderr="", return_code=0, content=[]
)
_BASH: Final = part("bash_20250124", name="bash")
_COMPUTER: Final = part(
    "computer_20251124", name="computer", display_width_px=100, display_height_px=80
)
_EDITOR: Final = part("text_editor_20250728", name="str_replace_based_edit_tool")
_MESSAGES_TOOL: Final = {"name": "g", "input_schema": SCHEMA}
_SEARCH: Final = part("web_search_20250305", name="web_search")
_OF_TOOLS: Final[Payload] = {
    "strict": True,
    "defer_loading": True,
    "input_examples": [{"city": "Rome"}],
    "allowed_callers": ["direct", "code_execution_20260120"],
    "eager_input_streaming": True,
    "cache_control": part("ephemeral"),
}

_MESSAGES: Final = {
    **top(
        system="red",
        temperature=0.5,
        top_p=0.5,
        top_k=3,
        stop_sequences=["END"],
        metadata={"user_id": "ann"},
        service_tier="standard_only",
        tool_choice=part("any"),
        container="container_1",
        context_management={"edits": [part("clear_tool_uses_20250919")]},
        mcp_servers=[part("url", url=_ADDRESS, name="m")],
        inference_geo="eu",
        speed="fast",
        cache_control=part("ephemeral"),
        output_format=part("json_schema", schema=SCHEMA),
        a_field_of_tomorrow=1,
    ),
    **{
        f"{name}.{field}": Field("top", {name: whole | {field: value}}, {name: whole})
        for name, whole, field, value in (
            ("thinking", part("adaptive"), "display", "omitted"),
            ("thinking", part("adaptive"), "tomorrow", 1),
            ("output_config", {"effort": "low"}, "task_budget", part("tokens", total=30000)),
            ("metadata", {"user_id": "ann"}, "tomorrow", 1),
            ("tool_choice", part("auto"), "disable_parallel_tool_use", True),
        )
    },
    "thinking": Field("top", {"thinking": part("enabled", budget_tokens=2000)}),
    "effort": Field("top", {"output_config": {"effort": "low"}, "thinking": part("adaptive")}),
    "format": Field("top", {"output_config": {"format": part("json_schema", schema=SCHEMA)}}),
    "tool": Field("tools", _MESSAGES_TOOL),
    **varied("tools", _MESSAGES_TOOL, description="red", tomorrow=0, **_OF_TOOLS),
    **varied("tools", _BASH, tomorrow=0, **_OF_TOOLS),
    **varied("tools", _EDITOR, max_characters=1000, **_OF_TOOLS),
    **varied("tools", part("memory_20250818", name="memory"), **_OF_TOOLS),
    **varied(
        "tools", _COMPUTER, display_number=0, enable_zoom=True, display_width_px=200, **_OF_TOOLS
    ),
    **varied(
        "tools",
        _SEARCH,
        max_uses=2,
        allowed_domains=["a.org"],
        blocked_domains=["b.org"],
        user_location=part("approximate", city="Rome"),
        **_OF_TOOLS,
    ),
    "code_execution": Field("tools", part("code_execution_20250825", name="code_execution")),
    "image": Field("user", part("image", source=part("url", url=_ADDRESS))),
    **varied(
        "user",
        part("image", source=part("url", url=_ADDRESS)),
        cache_control=part("ephemeral"),
        tomorrow=1,
    ),
    **varied(
        "user",
        _PDF_BLOCK,
        title="red",
        context="red",
        citations={"enabled": True},
        cache_control=part("ephemeral"),
    ),
    **{
        f"{where} {name}": field
        for where in ("user", "result")
        for name, field in (
            {"search_result": Field(where, _SEARCH_RESULT)}
            | varied(where, _SEARCH_RESULT, citations={"enabled": True}, title="B")
            | varied(
                where,
                part("document", source=part("text", media_type="text/plain", data="red")),
                title="red",
                context="red",
                citations={"enabled": True},
            )
            | varied(
                where,
                part("document", source=part("content", content=[part("text", text="red")])),
                citations={"enabled": True},
                title="red",
            )
        ).items()
    },
    **varied("user", part("text", text="red"), cache_control=part("ephemeral"), tomorrow=1),
    **varied(
        "assistant",
        part("text", text="red"),
        citations=[part("char_location", cited_text="x", document_index=0)],
    ),
    **varied(
        "turns",
        {"role": "assistant", "content": [_use()]},
        content=[_use(caller=part("code_execution_20250825", tool_id="srvtoolu_1"))],
    ),
    "thinking in history": Field(
        "turns",
        {"role": "assistant", "content": [part("thinking", thinking="Hm.", signature="c2ln")]},
    ),
    "redacted thinking": Field(
        "turns", {"role": "assistant", "content": [part("redacted_thinking", data="c2ln")]}
    ),
    "compaction": Field(
        "turns", {"role": "assistant", "content": [part("compaction", content="r")]}
    ),
    "container_upload": Field("user", part("container_upload", file_id="f")),
    "result.is_error": Field("result", {"is_error": True}),
    "web_fetch": _ran("server_tool_use", "web_fetch", _FETCHED),
    "code_execution in history": _ran("server_tool_use", "code_execution", _EXECUTED),
    "bash_code_execution in history": _ran(
        "server_tool_use",
        "bash_code_execution",
        part("bash_code_execution_result", stdout="found", stderr="", return_code=0, content=[]),
    ),
    "mcp in history": _ran("mcp_tool_use", "find", [part("text", text="found")], server_name="crm"),
    "web_search in history": _ran(
        "server_tool_use",
        "web_search",
        [part("web_search_result", url=_ADDRESS, title="found", encrypted_content="x")],
    ),
    "a block of tomorrow": Field("user", part("tomorrow")),
    "system later": Field("turns", {"role": "system", "content": "red"}),
    **varied("turns", {"role": "user", "content": "red"}, tomorrow=1),
}


def _item(kind: str, **fields: Any) -> Field:
    return Field("turns", part(kind, **fields))


_FLAT_TOOL: Final = part("function", name="g", parameters=SCHEMA, strict=False)
_SHELL: Final = part("shell", environment=part("local"))
_ITEM_CALL: Final = part("function_call", call_id="c8", name="f", arguments="{}")
_FORM: Final = part("json_schema", name="a", schema=SCHEMA)

_RESPONSES: Final = {
    **top(
        instructions="red",
        temperature=0.5,
        top_p=0.5,
        top_logprobs=2,
        max_output_tokens=200,
        max_tool_calls=3,
        truncation="auto",
        user="ann",
        safety_identifier="ann",
        metadata={"run": "7"},
        service_tier="priority",
        prompt={"id": "p"},
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        moderation={"model": "m"},
        context_management=[part("compaction", compact_threshold=1000)],
        parallel_tool_calls=False,
        tool_choice="required",
        a_field_of_tomorrow=1,
    ),
    **{
        f"include {name}": Field("top", {"include": [name]})
        for name in (
            "message.output_text.logprobs",
            "web_search_call.results",
            "file_search_call.results",
            "code_interpreter_call.outputs",
            "computer_call_output.output.image_url",
            "message.input_image.image_url",
        )
    },
    "effort": Field("top", {"reasoning": {"effort": "high"}}),
    **{
        f"reasoning.{field}": Field(
            "top",
            {"reasoning": {"effort": "high", field: value}},
            {"reasoning": {"effort": "high"}},
        )
        for field, value in (
            ("summary", "detailed"),
            ("generate_summary", "concise"),
            ("tomorrow", 1),
        )
    },
    "verbosity": Field("top", {"text": {"verbosity": "low"}}),
    "format": Field("top", {"text": {"format": _FORM}}),
    "format.description": Field(
        "top", {"text": {"format": _FORM | {"description": "red"}}}, {"text": {"format": _FORM}}
    ),
    "function": Field("tools", _FLAT_TOOL),
    **varied(
        "tools",
        _FLAT_TOOL,
        description="red",
        strict=True,
        defer_loading=True,
        allowed_callers=["direct", "programmatic"],
        output_schema=SCHEMA,
        tomorrow=0,
    ),
    "custom": Field("tools", part("custom", name="h")),
    **varied(
        "tools",
        part("custom", name="h"),
        description="red",
        format=part("grammar", syntax="lark", definition="start: WORD"),
        allowed_callers=["direct", "programmatic"],
        defer_loading=True,
    ),
    "namespace": Field("tools", part("namespace", name="crm", tools=[_FLAT_TOOL])),
    "shell": Field("tools", _SHELL),
    **varied(
        "tools",
        _SHELL,
        environment=part("local", skills=[{"name": "s", "description": "d", "path": "p"}]),
        allowed_callers=["direct", "programmatic"],
    ),
    "apply_patch": Field("tools", part("apply_patch")),
    **varied("tools", part("apply_patch"), allowed_callers=["direct", "programmatic"]),
    **varied(
        "tools",
        part("web_search"),
        search_context_size="low",
        user_location=part("approximate", city="Rome"),
        external_web_access=False,
        filters={"allowed_domains": ["a.org"]},
    ),
    "code_interpreter": Field("tools", part("code_interpreter", container=part("auto"))),
    "mcp": Field("tools", part("mcp", server_label="crm", server_url=_ADDRESS)),
    "input_image": Field("user", part("input_image", image_url=_ADDRESS)),
    **varied("user", part("input_image", image_url=_ADDRESS), detail="low", tomorrow=1),
    "input_file": Field("user", part("input_file", file_url=_ADDRESS)),
    **varied(
        "user",
        part("input_file", filename="a.pdf", file_data=_CHAT_PDF["file_data"]),
        detail="low",
        tomorrow=1,
    ),
    "input_audio": Field("user", part("input_audio", input_audio={"data": PNG, "format": "wav"})),
    **varied("user", part("input_text", text="red"), prompt_cache_breakpoint={"mode": "explicit"}),
    **varied("user", part("input_text", text="red"), tomorrow=1),
    "a part of tomorrow": Field("user", part("tomorrow")),
    **varied(
        "assistant",
        part("output_text", text="red"),
        annotations=[part("url_citation", url=_ADDRESS, start_index=0, end_index=1)],
        logprobs=[{"token": "r", "logprob": -1}],
    ),
    "refusal": Field("assistant", part("refusal", refusal="No.")),
    "phase": Field(
        "turns",
        {"role": "assistant", "content": "red", "phase": "commentary"},
        {"role": "assistant", "content": "red"},
    ),
    **varied("turns", _ITEM_CALL, caller=part("program", caller_id="p"), tomorrow=1),
    "result.caller": Field("result", {"caller": part("program", caller_id="p")}),
    "result.tomorrow": Field("result", {"tomorrow": 1}),
    "reasoning": _item("reasoning", id="rs_1", summary=[], encrypted_content="ZW5j"),
    "compaction": _item("compaction", encrypted_content="ZW5j"),
    "item_reference": _item("item_reference", id="msg_1"),
    "web_search_call": _item("web_search_call", id="ws_1", action=part("search", query="x")),
    "code_interpreter_call": _item(
        "code_interpreter_call",
        id="ci_1",
        code="print(1)",
        container_id="c",
        outputs=[part("logs", logs="found")],
    ),
    "mcp_call": _item(
        *("mcp_call",), id="m", name="find", server_label="crm", arguments="{}", output="found"
    ),
    "file_search_call": _item(
        *("file_search_call",),
        id="fs_1",
        queries=["x"],
        results=[{"file_id": "f", "filename": "a", "text": "found"}],
    ),
    "image_generation_call": _item("image_generation_call", id="ig_1", result=PNG),
    "an item of tomorrow": _item("tomorrow", id="t_1"),
}

FIELDS: Final[dict[Format, dict[str, Field]]] = {
    Format.CHAT: _CHAT,
    Format.MESSAGES: _MESSAGES,
    Format.RESPONSES: _RESPONSES,
}

_USER: Final = {"role": "user", "content": "Hello"}


def _base(format: Format) -> Payload:
    """A conversation with a call and its result, and with one tool."""
    ask, last = {"role": "user", "content": "Hello"}, {"role": "user", "content": "And then?"}
    match format:
        case Format.CHAT:
            calls = [part("function", id="c1", function={"name": "f", "arguments": "{}"})]
            turns = [ask, {"role": "assistant", "content": "I look.", "tool_calls": calls}]
            turns += [{"role": "tool", "tool_call_id": "c1", "content": "5"}, last]
            tool = part("function", function={"name": "f", "parameters": SCHEMA})
            return {"model": "m", "messages": turns, "tools": [tool]}
        case Format.MESSAGES:
            use = part("tool_use", id="c1", name="f", input={})
            result = part("tool_result", tool_use_id="c1", content=[part("text", text="5")])
            turns = [ask, {"role": "assistant", "content": [part("text", text="I look."), use]}]
            turns += [{"role": "user", "content": [result]}, last]
            tool = {"name": "f", "input_schema": SCHEMA}
            return {"model": "m", "max_tokens": 40000, "messages": turns, "tools": [tool]}
        case Format.RESPONSES:
            turns = [ask, part("function_call", call_id="c1", name="f", arguments="{}")]
            turns += [part("function_call_output", call_id="c1", output="5"), last]
            tool = part("function", name="f", parameters=SCHEMA, strict=False)
            return {"model": "m", "input": turns, "tools": [tool]}


def request(format: Format, *said: tuple[str, Any]) -> Payload:
    """A request that says each `(where, value)`."""
    body = deepcopy(_base(format))
    turns = body["input" if format is Format.RESPONSES else "messages"]
    contents: dict[str, list[Payload]] = {"user": [], "assistant": []}
    for where, value in said:
        value = deepcopy(value)
        match where:
            case "top":
                body |= value
            case "tools":
                body["tools"].append(value)
            case "turns":
                turns.insert(-1, value)
            case "result" if "type" in value:
                turns[2]["content"][0]["content"].append(value)
            case "result" if format is Format.MESSAGES:
                turns[2]["content"][0] |= value
            case "result":
                turns[2] |= value
            case _:
                contents[where].append(value)
    for role, content in contents.items():
        if content:
            turns.insert(-1, {"role": role, "content": content})
    return body
