"""What each row of docs/mapping.md is tried with: requests of clients, and replies of upstreams.

The page says what comes of them; `test_mapping.py` holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.wire.prompt.signatures import wrap
from tests.support.formats.fields import FIELDS, Field
from tests.wire.golden_files import TARGET

ClientRequest = tuple[Format, dict[str, Any]]

ORIGIN: Final = TARGET.origin
OF_THE_UPSTREAM: Final = "reasoning of the same upstream"
PICTURE: Final = "data:image/png;base64,iVBORw0KGgo="
PDF: Final = "data:application/pdf;base64,JVBERi0x"
SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
MARK: Final = {"cache_control": {"type": "ephemeral"}}
BREAK: Final = {"prompt_cache_breakpoint": {"mode": "explicit"}}
BILLING: Final = {"type": "text", "text": "x-anthropic-billing-header: v=1;"}
USER: Final = {"role": "user", "content": "Hello"}


def chat(*parts: Any, **fields: Any) -> ClientRequest:
    return Format.CHAT, {"model": "m", "messages": [*parts] or [USER], **fields}


def messages(*parts: Any, **fields: Any) -> ClientRequest:
    body = {"model": "m", "max_tokens": 40000, "messages": [*parts] or [USER], **fields}
    return Format.MESSAGES, {name: value for name, value in body.items() if value is not None}


def responses(*parts: Any, **fields: Any) -> ClientRequest:
    return Format.RESPONSES, {"model": "m", "input": [*parts] or [USER], **fields}


def says(role: str, *content: Any) -> dict[str, Any]:
    if len(content) == 1 and isinstance(content[0], str):
        return {"role": role, "content": content[0]}
    return {"role": role, "content": [*content]}


def every(*parts: Any, **fields: Any) -> list[ClientRequest]:
    """What all formats say alike."""
    return [make(*parts, **fields) for make in (chat, messages, responses)]


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def text(string: str, **fields: Any) -> dict[str, Any]:
    return part("text", text=string, **fields)


def url(address: str, **fields: Any) -> dict[str, Any]:
    return part("image_url", image_url={"url": address, **fields})


def block(kind: str, form: str, **source: Any) -> dict[str, Any]:
    return part(kind, source={"type": form, **source})


def user_turn(*parts: Any) -> dict[str, Any]:
    return says("user", *parts)


def assistant_turn(*parts: Any) -> dict[str, Any]:
    return says("assistant", *parts)


def chat_call(id: str = "call_1", name: str = "f") -> dict[str, Any]:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def chat_result(content: Any = "5", id: str = "call_1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def use(id: str = "call_1", name: str = "f", **fields: Any) -> dict[str, Any]:
    return assistant_turn(part("tool_use", id=id, name=name, input={}, **fields))


def result(content: Any = "5", id: str = "call_1", **fields: Any) -> dict[str, Any]:
    return user_turn(part("tool_result", tool_use_id=id, content=content, **fields))


def call_item(id: str = "call_1", name: str = "f", **fields: Any) -> dict[str, Any]:
    return part("function_call", call_id=id, name=name, arguments="{}", **fields)


def output(content: Any = "5", id: str = "call_1") -> dict[str, Any]:
    return part("function_call_output", call_id=id, output=content)


def loops(id: str = "call_1", name: str = "f") -> list[ClientRequest]:
    return [
        chat(USER, chat_call(id, name), chat_result(id=id), **CHAT_TOOL),
        messages(USER, use(id, name), result(id=id), **MESSAGES_TOOL),
        responses(USER, call_item(id, name), output(id=id), **RESPONSES_TOOL),
    ]


def function(name: str = "f", **fields: Any) -> dict[str, Any]:
    return part("function", function={"name": name, "parameters": SCHEMA, **fields})


def tool(name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": SCHEMA, **fields}


def flat(name: str = "f", **fields: Any) -> dict[str, Any]:
    return part("function", name=name, parameters=SCHEMA, **fields)


CHAT_TOOL: Final = {"tools": [function(), function("g")]}
MESSAGES_TOOL: Final = {"tools": [tool(), tool("g")]}
RESPONSES_TOOL: Final = {"tools": [flat(), flat("g")]}
SEARCH_RESULT: Final = part("search_result", title="t", source="s", content=[text("It rains.")])
LONG: Final = "a.name/" + 70 * "x"
GRAMMAR: Final = {"syntax": "lark", "definition": "start: WORD"}


def chosen(of_chat: Any, of_messages: Any, of_responses: Any) -> list[ClientRequest]:
    """A choice among the usual tools; None where the format has none such."""
    requests = [
        chat(tool_choice=of_chat, **CHAT_TOOL) if of_chat else None,
        messages(tool_choice=of_messages, **MESSAGES_TOOL) if of_messages else None,
        responses(tool_choice=of_responses, **RESPONSES_TOOL) if of_responses else None,
    ]
    return [request for request in requests if request is not None]


def form(**schema: Any) -> list[ClientRequest]:
    """A schema for the answer."""
    described = {"name": "answer", "schema": SCHEMA, **schema}
    return [
        chat(response_format={"type": "json_schema", "json_schema": described}),
        messages(output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
        responses(text={"format": {"type": "json_schema", **described}}),
    ]


RESULTS_OF_MESSAGES: Final = ("web_fetch", "code_execution in history", "mcp in history")
RESULTS_OF_RESPONSES: Final = ("mcp_call", "code_interpreter_call", "file_search_call")


def history(field: Field) -> list[dict[str, Any]]:
    return [USER, field.after, USER]


THINKING: Final = part("thinking", thinking="Hm.", signature="c2ln")
REASONING: Final = part("reasoning", id="rs_1", summary=[], encrypted_content="ZW5j")
SEARCHED: Final = part("server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "x"})
SEARCH_ITEM: Final = part("web_search_call", id="ws_1", action={"type": "search", "query": "x"})
CITED: Final = part("char_location", cited_text="x", document_index=0)
CITES: Final = part("url_citation", url="https://example.org", start_index=0, end_index=1)

CONVERSATION: Final[dict[str, Sequence[ClientRequest]]] = {
    "leading system and developer text": [
        chat(says("system", "Be brief."), says("developer", "And kind."), USER),
        messages(system="Be brief."),
        responses(instructions="Be brief."),
    ],
    "system text later on": [
        chat(USER, assistant_turn("Hi"), user_turn("Go on"), says("system", "Be brief.")),
        messages(USER, assistant_turn("Hi"), user_turn("Go on"), says("system", "Be brief.")),
        responses(USER, assistant_turn("Hi"), user_turn("Go on"), says("developer", "Be brief.")),
    ],
    "an agent's billing header in the system text": [
        messages(system=[BILLING, text("Be brief.")]),
    ],
    "consecutive messages of the same role": every(
        USER, user_turn("Again"), assistant_turn("Hi"), assistant_turn("Ho"), USER
    ),
    "a first message of the assistant": every(assistant_turn("Hi"), USER),
    "a last message of the assistant": every(USER, assistant_turn("Hi")),
    "empty texts": every(user_turn("")),
    "names of participants": [
        chat({**USER, "name": "Ann"}),
        chat(USER, {**assistant_turn("Hi"), "name": "Bob"}, USER),
    ],
    "calls without result": [
        chat(USER, chat_call(), USER, **CHAT_TOOL),
        messages(USER, use(), USER, **MESSAGES_TOOL),
        responses(USER, call_item(), USER, **RESPONSES_TOOL),
    ],
    "results without call": [
        chat(USER, chat_result()),
        messages(result()),
        responses(USER, output()),
    ],
    "anything between a call and its result": [
        chat(USER, chat_call(), USER, chat_result(), **CHAT_TOOL),
        messages(USER, use(), USER, result(), **MESSAGES_TOOL),
        responses(USER, call_item(), USER, output(), **RESPONSES_TOOL),
    ],
    "system text until the next user message (`clear_at`)": [
        messages(USER, {**says("system", "Be brief."), "clear_at": "next_user_message"}, USER),
    ],
    "`item_reference`": [responses(part("item_reference", id="msg_1"), USER)],
}

PARTS: Final[dict[str, Sequence[ClientRequest]]] = {
    "text": every(USER),
    "image, by URL or base64": [
        *(chat(user_turn(url(at))) for at in (PICTURE, "https://example.org/a.png")),
        messages(user_turn(block("image", "base64", media_type="image/png", data="iVBORw0KGgo="))),
        messages(user_turn(block("image", "url", url="https://example.org/a.png"))),
        responses(user_turn(part("input_image", image_url=PICTURE))),
    ],
    "image detail": [
        chat(user_turn(url(PICTURE, detail="low"))),
        responses(user_turn(part("input_image", image_url=PICTURE, detail="low"))),
    ],
    "PDF, base64": [
        chat(user_turn(part("file", file={"file_data": PDF}))),
        messages(
            user_turn(block("document", "base64", media_type="application/pdf", data="JVBERi0x"))
        ),
        responses(user_turn(part("input_file", file_data=PDF))),
    ],
    "other files, base64": [
        make(user_turn(part(kind, **fields)))
        for data in ("data:application/zip;base64,UEsDBA==",)
        for make, kind, fields in (
            (chat, "file", {"file": {"file_data": data}}),
            (responses, "input_file", {"file_data": data}),
        )
    ],
    "document by URL": [
        messages(user_turn(block("document", "url", url="https://example.org/a.pdf"))),
        responses(user_turn(part("input_file", file_url="https://example.org/a.pdf"))),
    ],
    "text document, with title and context": [
        messages(
            user_turn(
                block("document", "text", media_type="text/plain", data="It rains.")
                | {"title": "Weather", "context": "From today."}
            )
        ),
        chat(user_turn(part("file", file={"file_data": "data:text/plain;base64,SXQgcmFpbnMu"}))),
    ],
    "context of other documents": [
        messages(
            user_turn(
                block("document", "base64", media_type="application/pdf", data="JVBERi0x")
                | {"context": "From today."}
            )
        ),
    ],
    "file ids": [
        chat(user_turn(part("file", file={"file_id": "file_1"}))),
        messages(user_turn(block("document", "file", file_id="file_1"))),
        messages(user_turn(block("image", "file", file_id="file_1"))),
        responses(user_turn(part("input_image", file_id="file_1"))),
    ],
    "audio input": [
        make(user_turn(part("input_audio", input_audio={"data": "UklGRg==", "format": "wav"})))
        for make in (chat, responses)
    ],
    "images, files and audio in assistant messages": [
        chat(USER, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}, USER),
        chat(USER, assistant_turn(text("Here"), part("file", file={"file_data": PDF})), USER),
        chat(USER, assistant_turn(text("Here"), url(PICTURE)), USER),
        messages(
            USER, assistant_turn(text("Here"), block("image", "url", url="https://a.org/a")), USER
        ),
        messages(
            USER, assistant_turn(text("Here"), block("document", "url", url="https://a.org")), USER
        ),
        responses(USER, assistant_turn(part("input_image", image_url=PICTURE)), USER),
        responses(USER, assistant_turn(part("input_file", file_data=PDF)), USER),
        responses(
            USER,
            assistant_turn(part("input_audio", input_audio={"data": "UklGRg==", "format": "wav"})),
            USER,
        ),
    ],
    "refusal in the history": [
        chat(USER, {"role": "assistant", "content": None, "refusal": "No."}, USER),
        responses(USER, assistant_turn(part("refusal", refusal="No.")), USER),
    ],
    "citations in the history, of messages and responses": [
        messages(USER, assistant_turn(text("x", citations=[CITED])), USER),
        responses(USER, assistant_turn(part("output_text", text="x", annotations=[CITES])), USER),
    ],
    "citations of search results": [
        messages(
            says(
                "user",
                part(
                    "search_result",
                    source="https://a.example",
                    title="A",
                    content=[text("x")],
                    citations={"enabled": True},
                ),
            )
        ),
    ],
    "detail of a file": [
        responses(says("user", part("input_file", file_data=PDF, filename="a.pdf", detail="low"))),
    ],
    "annotations in the history, of chat": [
        chat(USER, {"role": "assistant", "content": "x", "annotations": [CITES]}, USER),
        chat(USER, assistant_turn(text("x", annotations=[CITES])), USER),
    ],
    "tool result: text": loops(),
    "tool result: images, documents": [
        messages(
            USER,
            use(),
            result([block("image", "url", url="https://example.org/a.png")]),
            **MESSAGES_TOOL,
        ),
        responses(
            USER,
            call_item(),
            output([part("input_image", image_url=PICTURE)]),
            **RESPONSES_TOOL,
        ),
    ],
    "tool result: `is_error`": [messages(USER, use(), result(is_error=True), **MESSAGES_TOOL)],
    OF_THE_UPSTREAM: [],
    "reasoning of another upstream": [
        chat(USER, {**assistant_turn("Hi"), "reasoning_content": "Hm."}, USER),
        messages(USER, assistant_turn(THINKING, text("Hi")), USER),
        responses(USER, REASONING, assistant_turn("Hi"), USER),
    ],
    "web searches in the history; own searches become calls with results": [
        messages(USER, assistant_turn(SEARCHED, text("x")), USER),
        responses(USER, SEARCH_ITEM, assistant_turn("Hi"), USER),
    ],
    "results in the history of pages, programs, MCP tools and searches in files that an upstream "
    "ran": [messages(*history(FIELDS[Format.MESSAGES][name])) for name in RESULTS_OF_MESSAGES]
    + [responses(*history(FIELDS[Format.RESPONSES][name])) for name in RESULTS_OF_RESPONSES],
    "what is no text in such results": [
        messages(
            USER,
            assistant_turn(
                part(
                    "code_execution_tool_result",
                    tool_use_id="srvtoolu_1",
                    content=part("code_execution_result", stdout="5", content=[{"file_id": "f"}]),
                )
            ),
            USER,
        ),
        responses(
            USER,
            part(
                "code_interpreter_call",
                code="draw()",
                outputs=[part("image", image_url="https://example.org/a.png")],
            ),
            USER,
        ),
    ],
    "prompt-cache breakpoints": [
        chat(user_turn(text("Hello", **BREAK))),
        chat(*[user_turn(text("Hello", **BREAK)), assistant_turn("Hi")] * 5, USER),
        messages(user_turn(text("Hello", **MARK))),
        responses(user_turn(part("input_text", text="Hello", **BREAK))),
    ],
    "prompt-cache breakpoints of tools and calls": [
        messages(USER, use(**MARK), result(), tools=[tool(**MARK)]),
    ],
    "search results": [
        messages(user_turn(SEARCH_RESULT, text("Hello"))),
        messages(USER, use(), result([SEARCH_RESULT]), **MESSAGES_TOOL),
    ],
    "documents of several texts": [
        messages(
            user_turn(
                block("document", "content", content=[text("It rains."), text("It stops.")])
                | {"title": "Weather", "context": "From today."}
            )
        ),
    ],
    "summaries of a compacted conversation, of messages": [
        messages(assistant_turn(part("compaction", content="It rains.")), USER),
    ],
    "the same of responses, which only their upstream can read": [
        responses(USER, part("compaction", encrypted_content="ZW5j"), USER),
    ],
    "files in a container; images, files and documents of a source that is not known": [
        messages(user_turn(part("container_upload", file_id="f"), text("Hello"))),
        messages(user_turn(block("image", "new"), text("Hello"))),
        messages(user_turn(block("document", "new"), text("Hello"))),
        chat(user_turn(part("file", file={"filename": "a"}), text("Hello"))),
    ],
    "parts of other kinds": [
        messages(user_turn(part("tool_reference", tool_name="f"), text("Hello"))),
        responses(USER, part("program", id="p"), USER),
    ],
    "who made a call or gets a result (`caller`), if it is a program": [
        messages(
            USER,
            use(caller=part("code_execution_20250825", tool_id="s")),
            result(),
            **MESSAGES_TOOL,
        ),
        responses(
            USER, call_item(caller=part("program", caller_id="p")), output(), **RESPONSES_TOOL
        ),
    ],
    "other fields of messages and parts": [
        chat({**USER, "mood": "good"}),
        messages(user_turn(text("Hello", mood="good"))),
        responses({**assistant_turn("Hi"), "phase": "commentary"}, USER),
    ],
}

TOOLS: Final[dict[str, Sequence[ClientRequest]]] = {
    "functions, schemas": [
        chat(**CHAT_TOOL),
        messages(**MESSAGES_TOOL),
        responses(**RESPONSES_TOOL),
    ],
    "a tool's `strict`, where its schema allows more than the upstream can enforce": [
        chat(tools=[function(strict=True, parameters={"type": "object"})]),
        messages(tools=[tool(strict=True)]),
        responses(tools=[flat(strict=True) | {"parameters": {"type": "object"}}]),
    ],
    "free-text (custom) tools": [
        chat(
            tools=[
                part("custom", custom={"name": "f", "format": part("grammar", grammar=GRAMMAR)}),
            ]
        ),
        responses(tools=[part("custom", name="f", format=part("grammar", **GRAMMAR))]),
    ],
    "namespaces of tools": [
        responses(tools=[part("namespace", name="crm", tools=[flat("find")])]),
    ],
    "names that are long or have other characters": [
        chat(tools=[function(LONG)]),
        messages(tools=[tool(LONG)]),
        responses(tools=[flat(LONG)]),
    ],
    "call ids that are long or have other characters": loops("call.1|" + 70 * "x"),
    "two calls with one id": [
        chat(USER, *[chat_call(), chat_result()] * 2, **CHAT_TOOL),
        messages(USER, *[use(), result()] * 2, **MESSAGES_TOOL),
        responses(USER, *[call_item(), output()] * 2, **RESPONSES_TOOL),
    ],
    "`bash_…`, `text_editor_…`, `memory_…`, `computer_…`": [
        messages(tools=[part("bash_20250124", name="bash")]),
        messages(tools=[part("text_editor_20250728", name="str_replace_based_edit_tool")]),
        messages(tools=[part("memory_20250818", name="memory")]),
    ],
    "`shell`, `local_shell`, `apply_patch`, `tool_search`": [
        responses(tools=[part("shell"), part("apply_patch")]),
        responses(tools=[part("local_shell"), part("tool_search", execution="client")]),
    ],
    "web search that the gateway does not run (see [Web search](web-search.md))": [
        chat(web_search_options={}),
        messages(tools=[part("web_search_20250305", name="web_search")]),
        responses(tools=[part("web_search"), flat()]),
    ],
    "its limits": [
        responses(
            tools=[
                part("web_search", search_context_size="low")
                | {"user_location": {"type": "approximate", "city": "Rome"}},
                flat(),
            ],
        ),
        responses(tools=[part("web_search")], max_tool_calls=3),
        chat(web_search_options={"search_context_size": "high"}),
        messages(
            tools=[
                part(
                    "web_search_20250305",
                    name="web_search",
                    max_uses=2,
                    allowed_domains=["a.org"],
                    user_location={"type": "approximate", "city": "Rome"},
                )
            ]
        ),
        responses(
            tools=[
                part(
                    "web_search",
                    search_context_size="high",
                    filters={"allowed_domains": ["a.org"]},
                    user_location={"type": "approximate", "city": "Rome"},
                ),
                flat(),
            ]
        ),
    ],
    "a search that may not be live (`external_web_access` false)": [
        responses(tools=[part("web_search", external_web_access=False), flat()]),
        responses(tools=[part("web_search", external_web_access=False)]),
    ],
    "its blocked domains": [
        messages(tools=[part("web_search_20250305", name="web_search", blocked_domains=["b.org"])]),
    ],
    "other tools that the upstream runs": [
        messages(tools=[part("code_execution_20250825", name="code_execution"), tool()]),
        responses(tools=[part("code_interpreter", container={"type": "auto"}), flat()]),
    ],
    "the same, where there is nothing else": [
        responses(tools=[part("code_interpreter", container={"type": "auto"})]),
        messages(tools=[part("code_execution_20250825", name="code_execution")]),
    ],
    "other fields of tools": [
        messages(tools=[tool(defer_loading=True)]),
        responses(tools=[flat(defer_loading=True)]),
    ],
    "tools that are added or removed in the conversation": [
        messages(
            USER,
            says(
                "system",
                part("tool_removal", tool=part("tool_reference", name="f")),
                part("tool_addition", tool=part("tool_definition", definition=tool("added"))),
            ),
            **MESSAGES_TOOL,
        ),
    ],
    "the same of MCP servers": [
        messages(
            USER,
            says(
                "system", part("tool_addition", tool=part("mcp_toolset_reference", server_name="x"))
            ),
            tools=[tool(), part("mcp_toolset", mcp_server_name="x")],
        ),
    ],
    "tools that only the model's programs may call (`allowed_callers` without `direct`)": [
        messages(tools=[tool(), tool("g", allowed_callers=["code_execution_20260120"])]),
        responses(tools=[flat(), flat("g", allowed_callers=["programmatic"])]),
    ],
    "choice: auto, none, required, one tool": [
        *chosen("auto", {"type": "auto"}, "auto"),
        *chosen("none", {"type": "none"}, "none"),
        *chosen("required", {"type": "any"}, "required"),
        *chosen(
            part("function", function={"name": "f"}),
            {"type": "tool", "name": "f"},
            {"type": "function", "name": "f"},
        ),
    ],
    "a forced choice with thinking": [
        chat(tool_choice="required", reasoning_effort="high", **CHAT_TOOL),
        messages(tool_choice={"type": "any"}, thinking={"type": "adaptive"}, **MESSAGES_TOOL),
        responses(tool_choice="required", reasoning={"effort": "high"}, **RESPONSES_TOOL),
    ],
    "choice among a subset of tools": [
        chat(
            tool_choice=part(
                "allowed_tools",
                allowed_tools={
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            ),
            **CHAT_TOOL,
        ),
        responses(
            tool_choice=part("allowed_tools", mode="auto", tools=[part("function", name="f")]),
            **RESPONSES_TOOL,
        ),
    ],
    "a forced tool that does not exist, or that the upstream does not have": [
        *chosen(
            part("function", function={"name": "h"}),
            {"type": "tool", "name": "h"},
            {"type": "function", "name": "h"},
        ),
    ],
    "no parallel calls": [
        chat(parallel_tool_calls=False, **CHAT_TOOL),
        messages(
            tool_choice={"type": "auto", "disable_parallel_tool_use": True},
            **MESSAGES_TOOL,
        ),
        responses(parallel_tool_calls=False, **RESPONSES_TOOL),
    ],
    "tools in the history, none in the request": [
        (format, {name: value for name, value in body.items() if name != "tools"})
        for format, body in loops(name="stub_me")
    ],
}

SETTINGS: Final[dict[str, Sequence[ClientRequest]]] = {
    "max tokens": [chat(max_completion_tokens=200), messages(), responses(max_output_tokens=200)],
    "a token limit beyond what the model or its upstream accepts": [
        chat(max_completion_tokens=10**6),
        chat(max_completion_tokens=8),
        messages(max_tokens=10**6),
        responses(max_output_tokens=10**6),
    ],
    "no limit": [chat(), responses()],
    "stop sequences": [
        make(**{field: [" ", *"abcde"]})
        for make, field in ((chat, "stop"), (messages, "stop_sequences"))
    ],
    "`temperature`, `top_p`": [
        make(temperature=0.5, top_p=0.9) for make in (chat, messages, responses)
    ],
    "`temperature` above 1": [chat(temperature=1.5), responses(temperature=1.5)],
    "both with thinking": [
        chat(temperature=0.5, top_p=0.9, reasoning_effort="high"),
        responses(temperature=0.5, top_p=0.9, reasoning={"effort": "high"}),
    ],
    "`top_k`": [chat(top_k=40), messages(top_k=40)],
    "`seed`": [chat(seed=7)],
    "penalties": [chat(frequency_penalty=0.5, presence_penalty=0.5)],
    "`n` above 1": [chat(n=2)],
    "log probabilities": [chat(logprobs=True, top_logprobs=2), responses(top_logprobs=2)],
    "reasoning effort, thinking budget": [
        *(chat(reasoning_effort=word) for word in ("none", "minimal", "high", "max")),
        messages(thinking={"type": "enabled", "budget_tokens": 9000}),
        messages(thinking={"type": "adaptive"}),
        responses(reasoning={"effort": "xhigh"}),
        responses(reasoning={"effort": "xhigh"}, max_output_tokens=5000),
    ],
    "how reasoning is shown": [
        messages(thinking={"type": "adaptive", "display": "omitted"}),
        messages(thinking={"type": "adaptive", "display": "summarized"}),
        responses(reasoning={"effort": "high", "summary": "detailed"}),
    ],
    "effort with tools": [
        chat(reasoning_effort="high", **CHAT_TOOL),
        messages(thinking={"type": "adaptive"}, **MESSAGES_TOOL),
        responses(reasoning={"effort": "high"}, **RESPONSES_TOOL),
    ],
    "JSON schema for the output": form(),
    "its `strict`, where the schema allows more than can be enforced": form(strict=True)[::2],
    "JSON without schema": [
        chat(user_turn("Answer in JSON."), response_format={"type": "json_object"}),
        responses(user_turn("Answer in JSON."), text={"format": {"type": "json_object"}}),
    ],
    "verbosity": [chat(verbosity="low"), responses(text={"verbosity": "low"})],
    "end user": [
        chat(user="ann"),
        chat(safety_identifier="ann"),
        messages(metadata={"user_id": "ann"}),
        responses(user="ann"),
        responses(safety_identifier="ann"),
    ],
    "the conversation's cache key": [
        chat(prompt_cache_key="thread-1"),
        messages(metadata={"user_id": "user_1_account_2_session_3"}),
        responses(prompt_cache_key="thread-1"),
    ],
    "`metadata`": [chat(metadata={"run": "7"}), responses(metadata={"run": "7"})],
    "service tier: automatic or standard": [
        chat(service_tier="default"),
        messages(service_tier="standard_only"),
        responses(service_tier="auto"),
    ],
    "other service tiers": [chat(service_tier="flex"), responses(service_tier="priority")],
    "`moderation`, `prompt_cache_options`, `prompt_cache_retention`": [
        make(
            moderation={"policy": "p"},
            prompt_cache_options={"mode": "implicit"},
            prompt_cache_retention="24h",
        )
        for make in (chat, responses)
    ],
    "audio output": [
        chat(modalities=["text", "audio"], audio={"voice": "a", "format": "wav"}),
        chat(modalities=["text", "audio"]),
    ],
    "`prompt`": [responses(prompt={"id": "p"})],
    "`background`, `conversation` of responses": [
        responses(background=True),
        responses(conversation="conv_1"),
    ],
    "`stream_options`, `usage`, `include`, and `store` of responses": [
        chat(usage={"include": True}),
        chat(stream=True, stream_options={"include_usage": True}),
        responses(stream=True, stream_options={"include_obfuscation": False}, store=True),
        responses(include=["reasoning.encrypted_content"]),
    ],
    "`store` of chat": [chat(store=True)],
    "other values of `include`, for what only some upstreams have": [
        responses(include=["code_interpreter_call.outputs"]),
    ],
    "an effort in a system message of messages": [
        messages(USER, {"role": "system", "output_config": {"effort": "low"}}, USER),
    ],
    "`configuration_update` of responses: effort and format of the output from then on": [
        responses(
            part(
                "configuration_update",
                reasoning={"effort": "low"},
                text={"format": part("json_schema", name="a", schema=SCHEMA)},
            ),
            USER,
        ),
    ],
    "unknown fields": [make(a_field_of_tomorrow=1) for make in (chat, messages, responses)],
}


def thinking_part(proof: str) -> dict[str, Any]:
    return part("thinking", thinking="Hm.", signature=proof)


THINKING_PARTS: Final = {
    Format.CHAT: messages(
        USER, assistant_turn(thinking_part(wrap(None, ORIGIN)), text("Hi")), USER
    ),
    Format.MESSAGES: responses(
        USER,
        part(
            "reasoning",
            summary=[part("summary_text", text="Hm.")],
            encrypted_content=wrap(ProviderData(Format.MESSAGES, "c2ln"), ORIGIN),
        ),
        assistant_turn("Hi"),
        USER,
    ),
    Format.RESPONSES: messages(
        USER,
        assistant_turn(
            thinking_part(
                wrap(ProviderData(Format.RESPONSES, {"encrypted_content": "ZW5j"}), ORIGIN)
            ),
            text("Hi"),
        ),
        USER,
    ),
}
"""Of each format's upstreams: reasoning goes back to nobody else."""

ROWS: Final = CONVERSATION | PARTS | TOOLS | SETTINGS

REPLIES: Final[dict[str, Sequence[str]]] = {
    "text": ["text", "several_texts"],
    "reasoning, also where a chat upstream has it in `reasoning_details` alone": [
        "thinking_then_text",
    ],
    "redacted reasoning": ["redacted_thinking"],
    "tool calls": ["one_tool", "parallel_tools"],
    "calls of free-text tools": ["custom_tool"],
    "a second call, for clients of the deprecated `functions`": ["parallel_tools"],
    "refusals": ["refusal"],
    "citations of web pages": ["citations"],
    "citations of documents": ["citation_of_a_document"],
    "web searches that the upstream ran": ["web_search"],
    "web pages that the upstream opened": ["page_opened"],
    "other tools that the upstream ran": ["code_execution", "mcp_call"],
    "images that the upstream generated": ["image_made"],
    "results of `moderation`, of which chat has a list and responses one": ["moderation"],
    "fields of the whole reply of messages: the category of a refusal, the container; "
    "`context_management`, `diagnostics` and `input_transformations` alike": [
        "fields_of_a_message"
    ],
    "images, audio and other fields of a chat message": ["fields_of_chat"],
    "parts of other kinds": ["compaction", "unknown_part"],
    "stop reasons": ["text", "one_tool", "max_tokens", "content_filter"],
    "turns that are interrupted, for reasons that the client's format does not have": [
        "interrupted",
    ],
    "turns that a messages upstream pauses, here in a web search": ["pause"],
    "usage": ["cached_usage"],
    "an upstream without usage": ["usage_unknown"],
    "service tier, where the upstream states it": ["text"],
    "the model's name": ["text"],
    "an error within a stream": ["error_mid_stream"],
}
"""Cases of the fixtures of streams."""
