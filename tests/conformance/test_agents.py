"""What coding agents send beyond the examples of any manual: free-text tools, tools in namespaces,
tools that the upstream would run, instructions in the middle, fields that only their vendor knows.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from anthropic import beta_async_tool

from gateway.core.formats import Format
from tests.conformance.neutral_reply import NeutralReply, Thinking, ToolCall, make_reply
from tests.conformance.pairs import FOREIGN, PAIRS, Clients, Pair, only
from tests.conformance.read_request import tools_of
from tests.conformance.validating_upstream import Body, Request, ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATCH = '*** Begin Patch\n*** Add File: a "b".txt\n+Grüße\\n 👩‍🚀\n*** End Patch\n'
READ = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
RESPONSES_AGENT: dict[str, Any] = {
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
    "reasoning": {"effort": "medium", "summary": "auto"},
    "text": {"verbosity": "low"},
    "tools": [
        {
            "type": "function",
            "name": "exec_command",
            "description": "Runs a command.",
            "strict": False,
            "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Edits files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"},
        },
        {
            "type": "namespace",
            "name": "mcp__files",
            "description": "Files.",
            "tools": [{"type": "function", "name": "read", "strict": False, "parameters": READ}],
        },
        {"type": "web_search", "external_web_access": False},
    ],
}


def _calls(upstream: Format) -> Any:
    """An upstream that calls both special tools, by the names under which it knows them."""

    def answer(body: Body) -> NeutralReply:
        thinking = Thinking("I patch and read.", "SEAL")
        if upstream is Format.RESPONSES:
            patch = ToolCall("call_1", "apply_patch", PATCH)
            read = ToolCall("call_2", "read", {"path": "a"}, namespace="mcp__files")
            return make_reply(thinking, patch, read)
        names = list(tools_of(Request(upstream, body)))
        (reader,) = (name for name in names if name.endswith("read"))
        patch = ToolCall("call_1", "apply_patch", {"input": PATCH})
        return make_reply(thinking, patch, ToolCall("call_2", reader, {"path": "a"}))

    return answer


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@only(pair for pair in PAIRS if pair.client is Format.RESPONSES)
async def test_the_responses_agent(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, streamed: bool
) -> None:
    vendor.play(_calls(pair.upstream), make_reply("Done."))
    fields = RESPONSES_AGENT | {"model": pair.model}
    if pair.upstream is not Format.RESPONSES:
        fields["extra_body"] = {"client_metadata": {"session": "1"}}
    history: list[Any] = [
        {"type": "message", "role": "developer", "content": _input("You are an agent.")},
        {"type": "message", "role": "user", "content": _input("Patch it.")},
    ]
    items = await _items(clients, fields | {"input": history}, streamed)
    assert [item.type for item in items] == ["reasoning", "custom_tool_call", "function_call"]
    _, patch, read = items
    assert (patch.name, patch.input) == ("apply_patch", PATCH)
    assert (read.name, read.namespace) == ("read", "mcp__files")
    assert orjson.loads(read.arguments) == {"path": "a"}

    history += items
    history += [
        {"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "patched"},
        {"type": "function_call_output", "call_id": read.call_id, "output": "Grüße"},
    ]
    (message,) = await _items(clients, fields | {"input": history}, streamed)
    assert message.content[0].text == "Done."
    again = orjson.dumps(vendor.last.body).decode()
    assert again.index("patched") < again.index("Grüße", again.index("patched"))


def _input(text: str) -> list[dict[str, Any]]:
    return [{"type": "input_text", "text": text}]


async def _items(clients: Clients, fields: dict[str, Any], streamed: bool) -> list[Any]:
    """The output; of a stream the one that is marked as done."""
    if not streamed:
        return list((await clients.openai.responses.create(**fields)).output)
    stream = await clients.openai.responses.create(**fields, stream=True)
    events: list[Any] = [event async for event in stream]
    assert events[-1].type == "response.completed"
    return [event.item for event in events if event.type == "response.output_item.done"]


MARK = {"type": "ephemeral"}
MESSAGES_AGENT: dict[str, Any] = {
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"},
        {"type": "text", "text": "You are an agent.", "cache_control": MARK},
        {"type": "text", "text": "Be careful.", "cache_control": MARK | {"ttl": "1h"}},
    ],
    "tools": [
        {
            "name": "Bash",
            "description": "Runs a command.",
            "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
                "required": ["command"],
                "additionalProperties": False,
            },
        },
        {
            "name": "Read",
            "input_schema": READ,
            "cache_control": MARK,
            "eager_input_streaming": True,
            "input_examples": [{"path": "a"}],
        },
    ],
    "thinking": {"type": "adaptive", "display": "summarized"},
    "output_config": {"effort": "medium"},
    "metadata": {
        "user_id": '{"device_id":"d41d8cd9","account_uuid":"","session_id":"11111111-2222"}'
    },
}


@only(pair for pair in PAIRS if pair.client is Format.MESSAGES)
async def test_the_messages_agent(clients: Clients, pair: Pair, vendor: ValidatingUpstream) -> None:
    vendor.play(
        make_reply(
            Thinking("I look.", "SEAL"),
            "Let me look.",
            ToolCall("toolu_1", "Bash", {"command": "ls"}),
            ToolCall("toolu_2", "Read", {"path": "a"}),
        ),
        make_reply("All is well."),
    )
    fields = MESSAGES_AGENT | {"model": pair.model}
    if pair.upstream is not Format.MESSAGES:
        edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
        fields["extra_body"] = {"context_management": edits}
    history: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": MARK}]},
    ]
    if not pair.native:
        history.append({"role": "system", "content": "The user opened a file."})
    message = await _message(clients, fields | {"messages": history})
    assert message.model == pair.model
    kinds = [block.type for block in message.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]

    results = [
        {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": False}
        for id, text in ((message.content[3].id, "read"), (message.content[2].id, "listed"))
    ]
    # Marks move on with the conversation.
    history[0]["content"][0].pop("cache_control")
    results[-1]["cache_control"] = MARK
    history += [
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": results},
    ]
    message = await _message(clients, fields | {"messages": history})
    assert [block.text for block in message.content] == ["All is well."]
    again = str(vendor.last.body)
    assert ("billing" in again) == (pair.upstream is Format.MESSAGES)
    assert again.count("SEAL") == (pair.upstream is not Format.CHAT)
    assert again.index("You are an agent.") < again.index("Be careful.")
    if not pair.native:
        assert again.count("The user opened a file.") == 1


async def _message(clients: Clients, fields: dict[str, Any]) -> Any:
    async with clients.anthropic.messages.stream(**fields) as helper:
        return await helper.get_final_message()


@only(pair for pair in PAIRS if pair.client is Format.MESSAGES and not pair.native)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_the_tool_runner(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, streamed: bool
) -> None:
    """The library's own loop wants a thread at the vendor's first, and sends everything itself
    once it hears that there are none."""

    @beta_async_tool
    async def read_clock(zone: str) -> str:
        """The time in a zone."""
        return f"noon in {zone}"

    vendor.play(
        make_reply(ToolCall("call_1", "read_clock", {"zone": "UTC"})), make_reply("It is noon.")
    )
    runner: Any = clients.anthropic.beta.messages.tool_runner(
        model=pair.model,
        max_tokens=1000,
        messages=[{"role": "user", "content": "The time?"}],
        tools=[read_clock],
        stream=streamed,
    )
    if streamed:
        final = [await stream.get_final_message() async for stream in runner][-1]
    else:
        final = await runner.until_done()
    assert [block.text for block in final.content] == ["It is noon."]
    assert "noon in UTC" in str(vendor.last.body)
    assert len(vendor.received) == 2


@only(pair for pair in PAIRS if pair.client is Format.MESSAGES and pair.upstream is Format.CHAT)
async def test_a_search_result_is_returned(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream
) -> None:
    """Where nobody upstream can search the web, the agent that asks for it may."""
    vendor.play(make_reply(ToolCall("call_1", "web_search", {"query": "model gateway"})))
    message = await clients.anthropic.messages.create(
        model=pair.model,
        max_tokens=1000,
        messages=[{"role": "user", "content": "Search for it."}],
        tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
    )
    (block,) = message.content
    assert (block.type, block.name) == ("tool_use", "web_search")
    assert block.input == {"query": "model gateway"}
    assert message.stop_reason == "tool_use"


@only(pair for pair in FOREIGN if pair.client is Format.CHAT)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_free_text_through_chat(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, streamed: bool
) -> None:
    def answer(body: Body) -> NeutralReply:
        if pair.upstream is Format.RESPONSES:
            return make_reply(ToolCall("call_1", "apply_patch", PATCH))
        assert list(tools_of(Request(pair.upstream, body))) == ["apply_patch"]
        return make_reply(ToolCall("call_1", "apply_patch", {"input": PATCH}))

    vendor.play(answer, make_reply("Done."))
    history: list[Any] = [{"role": "user", "content": "Patch it."}]
    custom = {"name": "apply_patch", "format": {"type": "text"}}
    fields = {"model": pair.model, "tools": [{"type": "custom", "custom": custom}]}
    create: Any = clients.openai.chat.completions.create
    if streamed:
        call: dict[str, Any] = {"id": "", "type": "custom", "custom": {"name": "", "input": ""}}
        async for chunk in await create(messages=history, stream=True, **fields):
            for delta in chunk.choices[0].delta.tool_calls or ():
                call["id"] += delta.id or ""
                results = (delta.model_extra or {}).get("custom") or {}
                call["custom"]["name"] += results.get("name") or ""
                call["custom"]["input"] += results.get("input") or ""
    else:
        (made,) = (await create(messages=history, **fields)).choices[0].message.tool_calls
        call = made.to_dict()
    assert call["custom"] == {"name": "apply_patch", "input": PATCH}
    history += [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "patched"},
    ]
    completion = await create(messages=history, **fields)
    assert completion.choices[0].message.content == "Done."
