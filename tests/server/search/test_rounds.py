"""Searches that the gateway runs: what the model, the client and the endpoint get."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import (
    ProviderData,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.core.reply import Reply
from gateway.server.record.deadlines import abort_all
from gateway.store.records import ExchangeState
from tests.server.format_pairs import TOOLS, parse_stream, usage_option
from tests.support.gateway import ALPHA, RunningGateway, channel, request_body, run_gateway
from tests.support.searches import (
    PAGES,
    found,
    model_reply,
    search,
    search_tool,
    searching_gateway,
)
from tests.support.upstream import (
    STREAM_VARIANTS,
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    event_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

MESSAGES, CHAT, RESPONSES = Format.MESSAGES, Format.CHAT, Format.RESPONSES
LOOK = "Let me look."
ANSWER = "About 700,000."


async def ask(
    gateway: RunningGateway, client_format: Format = MESSAGES, **fields: Any
) -> tuple[Reply, Any]:
    """The reply to a request with a web search, and the row."""
    fields = search_tool(client_format, **fields.pop("options", {})) | fields
    fields |= usage_option(client_format)
    answer = await gateway.post(client_format, stream=True, **fields)
    assert answer.status == 200, await answer.read()
    return parse_stream(client_format, await answer.read()), await gateway.rows()


def results(reply: Reply) -> list[Any]:
    """The content of each result block: addresses, or the code of the error."""
    contents: list[Any] = []
    for part in reply.parts:
        if isinstance(part, ServerToolResult):
            content = part.content.data["content"]
            if isinstance(content, dict):
                contents.append(content["error_code"])
            else:
                contents.append([page["url"] for page in content])
    return contents


def tool_message(body: Any) -> str:
    """The text of the last tool result in a chat request."""
    messages = [each for each in body["messages"] if each["role"] == "tool"]
    return str(messages[-1]["content"])


async def test_what_a_chat_upstream_gets(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, LOOK, search()), model_reply(CHAT, ANSWER)
        )
        location = {"type": "approximate", "city": "Oslo", "country": "NO"}
        await ask(searching.gateway, options={"user_location": location, "max_uses": 8})
        first, second = searching.bodies
        (tool,) = first["tools"]
        assert tool["function"]["name"] == "web_search"
        assert "Oslo, NO" in tool["function"]["description"]
        assert first["stream"] is True
        assert second["tools"] == first["tools"]
        user, assistant, result = second["messages"]
        assert (user, assistant["content"]) == (first["messages"][0], LOOK)
        (call,) = assistant["tool_calls"]
        assert call["id"] == result["tool_call_id"] == "call_1"
        assert result["role"] == "tool"
        for page in PAGES:
            assert page["url"] in result["content"] and page["content"] in result["content"]
        request = searching.endpoint.last_request
        assert request.method == "GET"
        assert request.url.query == "q=population+of+Oslo&format=json"


@pytest.mark.parametrize("upstream_format", [MESSAGES, RESPONSES])
@pytest.mark.parametrize("client_format", [MESSAGES, RESPONSES, CHAT])
async def test_what_other_upstreams_get(
    gateway_of_module: RunningGateway, upstream_format: Format, client_format: Format
) -> None:
    async with searching_gateway(gateway_of_module, upstream_format) as searching:
        searching.upstream.respond_with(
            model_reply(upstream_format, search()), model_reply(upstream_format, ANSWER)
        )
        reply, _ = await ask(searching.gateway, client_format)
        assert Text(ANSWER).text in [getattr(part, "text", None) for part in reply.parts]
        first, second = searching.bodies
        (tool,) = first["tools"]
        assert tool["name"] == "web_search"
        assert tool.get("type") in (None, "function")
        raw = orjson.dumps(second).decode()
        assert PAGES[0]["content"] in raw
        assert "server_tool_use" not in raw and "web_search_call" not in raw
        key = "input" if upstream_format is RESPONSES else "messages"
        assert len(second[key]) == len(first[key]) + 2


async def test_domains(gateway_of_module: RunningGateway) -> None:
    pages = [
        {"url": f"https://{host}/page", "title": host}
        for host in ("a.org", "www.a.org", "nota.org", "b.org", "docs.b.org", "a.org.evil.com")
    ]
    expected = {
        ("allowed_domains", "a.org"): ["a.org", "www.a.org"],
        ("allowed_domains", "docs.b.org"): ["docs.b.org"],
        ("allowed_domains", "https://A.org"): ["a.org", "www.a.org"],
        ("allowed_domains", "a.org/other"): [],
        ("allowed_domains", "b.org/p*e"): ["b.org", "docs.b.org"],
        ("blocked_domains", "a.org"): ["nota.org", "b.org", "docs.b.org", "a.org.evil.com"],
    }
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.endpoint.respond_with(found(pages))
        for (name, domain), hosts in expected.items():
            searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
            reply, _ = await ask(searching.gateway, options={name: [domain]})
            assert results(reply) == [[f"https://{host}/page" for host in hosts]], domain
        assert searching.endpoint.requests[0].url.query.startswith("q=population+of+Oslo+site")
        assert "Nothing was found" in tool_message(searching.bodies[7])


async def test_unusable_results(gateway_of_module: RunningGateway) -> None:
    pages: list[Any] = [
        {"url": "javascript:alert(1)", "title": "x"},
        {"url": "https://[broken", "title": "x"},
        {"url": "https://a.org/" + "x" * 3000, "title": "x"},
        {"url": 5},
        "text",
        None,
        {"url": "https://a.org/1", "title": 7, "content": ["x"]},
        {"url": "https://a.org/1", "title": "again"},
        {"url": "https://a.org/2", "title": "t\n\u0007t" * 400, "content": "c" * 9000},
    ]
    async with searching_gateway(gateway_of_module, CHAT, search={"max_results": 2}) as searching:
        searching.endpoint.respond_with(found([*pages, *PAGES]))
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        reply, _ = await ask(searching.gateway)
        assert results(reply) == [["https://a.org/1", "https://a.org/2"]]
        assert len(tool_message(searching.bodies[1])) < 3000


@pytest.mark.parametrize("parallel", [True, False])
async def test_max_uses(gateway_of_module: RunningGateway, parallel: bool) -> None:
    calls = [search(f"query {n}", f"call_{n}") for n in range(3 if parallel else 2)]
    rounds: list[Response] = []
    if parallel:
        rounds = [model_reply(CHAT, LOOK, *calls)]
    else:
        rounds = [model_reply(CHAT, call) for call in calls]
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(*rounds, model_reply(CHAT, ANSWER))
        reply, (row,) = await ask(searching.gateway, options={"max_uses": 1})
        pages = [page["url"] for page in PAGES]
        assert results(reply) == [pages, *["max_uses_exceeded"] * (len(calls) - 1)]
        kinds = [type(part) for part in reply.parts]
        start = 1 if parallel else 0
        assert kinds[start:] == [ServerToolCall, ServerToolResult] * len(calls) + [Text]
        assert len(searching.endpoint.requests) == row.web_searches == 1
        assert reply.usage is not None and reply.usage.web_searches == 1
        assert "max_uses_exceeded" in tool_message(searching.bodies[-1])
        if not parallel:  # the model was told, then it could call no more
            choices = [body.get("tool_choice") for body in searching.bodies]
            assert choices == [None, None, "none"]


@pytest.mark.parametrize(
    ("client_format", "stop"),
    [(MESSAGES, StopReason.PAUSE), (CHAT, StopReason.MAX_TOKENS)],
)
async def test_a_turn_that_ends_early_is_not_complete(
    gateway_of_module: RunningGateway, client_format: Format, stop: StopReason
) -> None:
    """Clients of messages can continue it; for others it was cut off."""
    async with searching_gateway(gateway_of_module, CHAT, search={"max_searches": 1}) as searching:
        searching.upstream.respond_with(model_reply(CHAT, search()))  # for ever
        reply, (row,) = await ask(searching.gateway, client_format)
        assert reply.stop is stop
        assert row.stop_reason == "pause"


async def test_the_limit_of_the_configuration(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT, search={"max_searches": 2}) as searching:
        searching.upstream.respond_with(model_reply(CHAT, search()))  # for ever
        reply, (row,) = await ask(searching.gateway, options={"max_uses": 50})
        assert reply.stop is StopReason.PAUSE
        assert len(searching.endpoint.requests) == row.web_searches == 2
        assert len(searching.bodies) <= 5
        assert searching.bodies[-1]["tool_choice"] == "none"
        assert row.state is ExchangeState.OK


async def test_unknown_options_are_named(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, MESSAGES) as searching:
        searching.upstream.respond_with(model_reply(MESSAGES, ANSWER))
        _, (row,) = await ask(searching.gateway, options={"depth": "full"})
        assert row.dropped == "tools.depth"
        answer = await searching.gateway.post(MESSAGES, **search_tool(MESSAGES, depth="full"))
        assert answer.headers["x-gateway-dropped"] == "tools.depth"
        headers = {"x-gateway-strict": "1"}
        fields = search_tool(MESSAGES, depth="full") | {"headers": headers}
        answer = await searching.gateway.post(MESSAGES, **fields)
        assert (answer.status, len(searching.bodies)) == (400, 2)


@pytest.mark.parametrize("client_format", [CHAT, RESPONSES])
@pytest.mark.parametrize("size", ["low", "medium", "high"])
async def test_a_context_size_is_named(
    gateway_of_module: RunningGateway, client_format: Format, size: str
) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, ANSWER))
        options = {"search_context_size": size}
        _, (row,) = await ask(searching.gateway, client_format, options=options)
        assert row.dropped == (None if size == "medium" else "tools.search_context_size")


@pytest.mark.parametrize("limit", [0, "1", True])
async def test_a_malformed_limit_of_a_responses_client(
    gateway_of_module: RunningGateway, limit: Any
) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        fields = search_tool(RESPONSES) | {"max_tool_calls": limit}
        answer = await searching.gateway.post(RESPONSES, **fields)
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "max_tool_calls"
        assert searching.bodies == []


async def test_the_limit_of_a_responses_client(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, search()), model_reply(CHAT, search()), model_reply(CHAT, ANSWER)
        )
        reply, _ = await ask(searching.gateway, RESPONSES, max_tool_calls=1)
        assert len(searching.endpoint.requests) == 1
        statuses = [
            part.content.data["status"]
            for part in reply.parts
            if isinstance(part, ServerToolResult)
        ]
        assert statuses == ["completed", "failed"]


FAILURES: dict[str, tuple[Response, str]] = {
    "status 500": (json_response({}, 500), "unavailable"),
    "status 429": (json_response({}, 429), "too_many_requests"),
    "a redirect": (
        Response(status=302, headers={"location": "http://127.0.0.1:9/"}),
        "unavailable",
    ),
    "no JSON": (json_response(b"<html>"), "unavailable"),
    "no list": (json_response({"results": "x"}), "unavailable"),
    "deep": (json_response(b"[" * 100_000), "unavailable"),
    "huge": (Response(chunks=(b" " * 2**20,) * 4), "unavailable"),
    "cut": (Response(chunks=(b'{"results":', b""), ending=Ending.TRUNCATED), "unavailable"),
    "silent": (Response(chunks=(b"{",), ending=Ending.STALLED), "unavailable"),
    "no HTTP": (Response(raw=b"\0\1\2\r\n\r\n"), "unavailable"),
    "compressed": (json_response(b"x", content_encoding="gzip"), "unavailable"),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_an_endpoint_that_fails(gateway_of_module: RunningGateway, case: str) -> None:
    answer, code = FAILURES[case]
    async with searching_gateway(gateway_of_module, CHAT, search={"timeout": 0.3}) as searching:
        searching.endpoint.respond_with(answer)
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        async with asyncio.timeout(5):
            reply, (row,) = await ask(searching.gateway)
        assert results(reply) == [code]
        assert reply.stop is StopReason.END_TURN
        assert f"failed: {code}" in tool_message(searching.bodies[1])
        assert (row.state, row.web_searches) == (ExchangeState.OK, 0)
        assert len(searching.endpoint.requests) == 1


async def test_an_endpoint_that_is_not_there(gateway_of_module: RunningGateway) -> None:
    url = "http://127.0.0.1:9/search"
    async with searching_gateway(gateway_of_module, CHAT, search={"url": url}) as searching:
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        reply, _ = await ask(searching.gateway)
        assert results(reply) == ["unavailable"]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (search(None), "invalid_tool_input"),
        (search("  "), "invalid_tool_input"),
        (ToolCall("c", "web_search", '{"query": 5}'), "invalid_tool_input"),
        (ToolCall("c", "web_search", '["x"]'), "invalid_tool_input"),
        (search("x" * 1001), "query_too_long"),
    ],
)
async def test_a_call_that_is_no_search(
    gateway_of_module: RunningGateway, call: ToolCall, code: str
) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, call), model_reply(CHAT, ANSWER))
        reply, _ = await ask(searching.gateway)
        assert results(reply) == [code]
        assert searching.endpoint.requests == []


async def test_several_rounds(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, LOOK, search("one", "call_1")),
            model_reply(CHAT, "And once more.", search("two", "call_2")),
            model_reply(CHAT, ANSWER),
        )
        reply, (row,) = await ask(searching.gateway)
        assert [type(part) for part in reply.parts] == [
            *(Text, ServerToolCall, ServerToolResult),
            *(Text, ServerToolCall, ServerToolResult, Text),
        ]
        assert reply.usage == Usage(input_tokens=300, output_tokens=30, web_searches=2)
        assert (row.input_tokens, row.output_tokens, row.web_searches) == (300, 30, 2)
        assert [each["role"] for each in searching.bodies[2]["messages"]] == [
            *("user", "assistant", "tool", "assistant", "tool"),
        ]
        searches = await searching.gateway.operations.list_searches(row.id)
        assert [(each.query, each.results, each.error) for each in searches] == [
            ("one", 2, None),
            ("two", 2, None),
        ]
        assert 0 < searches[0].started_us < searches[1].started_us < row.total_us
        assert searches[0].total_us > 0


@pytest.mark.parametrize("order", ["search first", "search last"])
async def test_a_search_and_a_call_of_the_client(
    gateway_of_module: RunningGateway, order: str
) -> None:
    weather = ToolCall("call_w", "get_weather", '{"city":"Oslo"}')
    calls = [search(), weather] if order == "search first" else [weather, search()]
    tools = [*TOOLS[MESSAGES], *search_tool(MESSAGES)["tools"]]
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, LOOK, *calls))
        reply, (row,) = await ask(searching.gateway, tools=tools)
        assert reply.stop is StopReason.TOOL_CALL
        kinds = [type(part) for part in reply.parts]
        assert sorted(map(str, kinds)) == sorted(
            map(str, [Text, ServerToolCall, ServerToolResult, ToolCall])
        )
        assert kinds.index(ServerToolResult) == kinds.index(ServerToolCall) + 1
        assert results(reply) == [[page["url"] for page in PAGES]]
        assert len(searching.bodies) == 1
        assert row.stop_reason == "tool_call"

        searching.upstream.respond_with(model_reply(CHAT, ANSWER))
        answer = await searching.gateway.post(
            MESSAGES, messages=history(reply, "call_w"), tools=tools
        )
        assert answer.status == 200
        sent = searching.bodies[-1]["messages"]
        assert [each["role"] for each in sent] == [
            *("user", "assistant", "tool", "assistant", "tool"),
        ]
        assert [call["function"]["name"] for call in sent[1]["tool_calls"]] == ["web_search"]
        assert PAGES[0]["content"] in sent[2]["content"]
        assert [call["function"]["name"] for call in sent[3]["tool_calls"]] == ["get_weather"]
        assert sent[4]["content"] == "sunny"


def history(reply: Reply, call_id: str | None = None) -> list[dict[str, Any]]:
    """A conversation of a messages client that continues a reply of the gateway."""
    content: list[dict[str, Any]] = []
    for part in reply.parts:
        match part:
            case Text(text):
                content.append({"type": "text", "text": text})
            case ServerToolCall(id, name, arguments):
                fields = {"id": id, "name": name, "input": orjson.loads(arguments)}
                content.append({"type": "server_tool_use"} | fields)
            case ServerToolResult(content=data):
                content.append(data.data)
            case ToolCall(id, name, arguments):
                fields = {"id": id, "name": name, "input": orjson.loads(arguments)}
                content.append({"type": "tool_use"} | fields)
    turn: Any = "Go on."
    if call_id is not None:
        turn = [{"type": "tool_result", "tool_use_id": call_id, "content": "sunny"}]
    return [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": turn},
    ]


@pytest.mark.parametrize("with_tool", [True, False])
@pytest.mark.parametrize("trait", [None, False])
@pytest.mark.parametrize("upstream_format", list(Format))
async def test_the_history_of_a_messages_client(
    tmp_path: Path, upstream_format: Format, trait: bool | None, with_tool: bool
) -> None:
    """Also where the next request goes to an upstream that searches itself, in either lane."""
    async with searching_gateway(tmp_path, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        reply, _ = await ask(searching.gateway)
    line = {"traits": {} if trait is None else {"web_search": trait}}
    async with searching_gateway(tmp_path / "next", upstream_format, line=line) as searching:
        searching.upstream.respond_with(model_reply(upstream_format, "Yes."))
        tools = search_tool(MESSAGES) if with_tool else {}
        answer = await searching.gateway.post(
            MESSAGES, stream=True, messages=history(reply), **tools
        )
        assert answer.status == 200, await answer.read()
        raw = searching.upstream.last_request.body.decode()
        assert PAGES[0]["content"] in raw and "population of Oslo" in raw
        assert "gw1s." not in raw and "server_tool_use" not in raw


@pytest.mark.parametrize("trait", [None, False])
@pytest.mark.parametrize("upstream_format", list(Format))
async def test_the_history_of_a_responses_client(
    tmp_path: Path, upstream_format: Format, trait: bool | None
) -> None:
    async with searching_gateway(tmp_path, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        answer = await searching.gateway.post(RESPONSES, **search_tool(RESPONSES))
        output = (await answer.json())["output"]
    line = {"traits": {} if trait is None else {"web_search": trait}}
    async with searching_gateway(tmp_path / "next", upstream_format, line=line) as searching:
        searching.upstream.respond_with(model_reply(upstream_format, "Yes."))
        items = [
            {"role": "user", "content": "Hello"},
            *output,
            {"role": "user", "content": "Go on."},
        ]
        answer = await searching.gateway.post(
            RESPONSES, stream=True, input=items, **search_tool(RESPONSES)
        )
        assert answer.status == 200, await answer.read()
        raw = searching.upstream.last_request.body.decode()
        assert PAGES[0]["content"] in raw and "population of Oslo" in raw
        assert "gw1s." not in raw and 'web_search_call"' not in raw


async def test_a_forced_search_is_forced_once(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        await ask(searching.gateway, tool_choice={"type": "tool", "name": "web_search"})
        first, second = searching.bodies
        assert first["tool_choice"] == {"type": "function", "function": {"name": "web_search"}}
        assert "tool_choice" not in second


@pytest.mark.parametrize("client_format", [MESSAGES, RESPONSES])
async def test_no_search_by_choice(
    gateway_of_module: RunningGateway, client_format: Format
) -> None:
    choice: Any = {"type": "none"} if client_format is MESSAGES else "none"
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, ANSWER))
        await ask(searching.gateway, client_format, tool_choice=choice)
        body = searching.upstream.last_request.json
        assert body.get("tool_choice") == "none" or "tools" not in body
        assert searching.endpoint.requests == []


async def test_a_tool_of_the_same_name(gateway_of_module: RunningGateway) -> None:
    tools = [
        {"name": "web_search", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, ToolCall("call_1", "gateway_web_search", '{"query":"x"}')),
            model_reply(CHAT, ToolCall("call_2", "web_search", "{}")),
        )
        reply, _ = await ask(searching.gateway, tools=tools)
        names = [tool["function"]["name"] for tool in searching.bodies[0]["tools"]]
        assert names == ["web_search", "gateway_web_search"]
        assert [type(part) for part in reply.parts] == [ServerToolCall, ServerToolResult, ToolCall]
        assert reply.stop is StopReason.TOOL_CALL


@pytest.mark.parametrize("upstream_format", list(Format))
async def test_without_an_endpoint_the_client_gets_the_call(
    tmp_path: Path, upstream: ScriptedUpstream, upstream_format: Format
) -> None:
    line = channel(upstream_format, upstream.address) | {"traits": {"web_search": False}}
    upstream.respond_with(model_reply(upstream_format, search()))
    async with run_gateway(tmp_path, [line]) as gateway:
        reply, _ = await ask(gateway)
        (call,) = reply.parts
        assert isinstance(call, ToolCall) and call.name == "web_search"
        assert reply.stop is StopReason.TOOL_CALL


async def test_an_upstream_that_searches_itself(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, MESSAGES, line={"traits": {}}) as searching:
        searching.upstream.respond_with(model_reply(MESSAGES, ANSWER))
        _, (row,) = await ask(searching.gateway)
        assert row.lane == "native"
        assert searching.bodies[0]["tools"] == search_tool(MESSAGES)["tools"]


async def test_blocked_domains_where_the_upstream_cannot_block(
    gateway_of_module: RunningGateway,
) -> None:
    async with searching_gateway(gateway_of_module, RESPONSES, line={"traits": {}}) as searching:
        searching.upstream.respond_with(
            model_reply(RESPONSES, search()), model_reply(RESPONSES, ANSWER)
        )
        reply, _ = await ask(searching.gateway, options={"blocked_domains": ["example.org"]})
        assert results(reply) == [["https://docs.example.net/norway"]]
        assert searching.bodies[0]["tools"][0]["type"] == "function"


async def test_a_coding_agents_search(gateway_of_module: RunningGateway) -> None:
    """Its request has nothing but the tool."""
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        system = "You are an assistant for performing a web search tool use"
        reply, (row,) = await ask(
            searching.gateway,
            options={"max_uses": 8},
            tool_choice={"type": "auto"},
            system=system,
            max_tokens=32000,
            messages=[
                {
                    "role": "user",
                    "content": "Perform a web search for the query: population of Oslo",
                }
            ],
        )
        assert results(reply) == [[page["url"] for page in PAGES]]
        assert (row.dropped, row.state) == (None, ExchangeState.OK)


def failing(format: Format = CHAT, status: int = 503) -> Response:
    return json_response({"error": {"message": "no capacity", "type": "server_error"}}, status)


def started(*parts: Any) -> Response:
    """A reply that breaks off after its first frames."""
    frames = by_frame(model_reply(CHAT, *parts))
    return frames.with_changes(chunks=frames.chunks[:2], ending=Ending.TRUNCATED)


@pytest.mark.parametrize("accounts", [1, 2])
@pytest.mark.parametrize("failure", ["status", "empty stream"])
async def test_a_later_round_is_tried_again(
    gateway_of_module: RunningGateway, accounts: int, failure: str
) -> None:
    broken = failing() if failure == "status" else event_stream(b"")
    async with searching_gateway(gateway_of_module, CHAT, accounts=accounts) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, LOOK, search()), broken, model_reply(CHAT, ANSWER)
        )
        reply, (row,) = await ask(searching.gateway)
        assert reply.parts[-1] == Text(ANSWER)
        assert reply.usage == Usage(input_tokens=200, output_tokens=20, web_searches=1)
        keys = [request.headers["authorization"] for request in searching.upstream.requests]
        assert len(keys) == 3
        assert keys[0] == keys[1]
        assert (keys[2] != keys[1]) is (accounts == 2)
        assert (row.state, row.attempts) == (ExchangeState.OK, 2)


async def test_retries_of_a_later_round_follow_weights_and_stop_after_three(tmp_path: Path) -> None:
    """An account of weight 0 is tried only if no other is left."""
    weights = [1, 0, 1, 1]
    accounts = [{"name": f"a{n}", "key": f"key-{n}", "weight": w} for n, w in enumerate(weights)]
    async with searching_gateway(tmp_path, CHAT) as searching:
        line = channel(CHAT, searching.upstream.address)
        line |= {"traits": {"web_search": False}, "accounts": accounts}
        endpoint = {"url": f"{searching.endpoint.address}/search"}
        for attempt in range(8):
            searching.upstream.requests.clear()
            searching.upstream.respond_with(model_reply(CHAT, LOOK, search()), failing(status=500))
            async with run_gateway(tmp_path / str(attempt), [line], search=endpoint) as gateway:
                answer = await gateway.post(MESSAGES, stream=True, **search_tool(MESSAGES))
                await answer.read()
            keys = [each.headers["authorization"] for each in searching.upstream.requests]
            assert len(keys) == 1 + 3
            assert keys[1] == keys[0]
            assert "Bearer key-1" not in keys and len({*keys[1:]}) == 3


async def test_a_later_round_that_breaks_off(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT, accounts=2) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, LOOK, search()), started(ANSWER), model_reply(CHAT, ANSWER)
        )
        answer = await searching.gateway.post(MESSAGES, stream=True, **search_tool(MESSAGES))
        raw = await answer.read()
        assert raw.rstrip().rpartition(b"event: ")[2].startswith(b"error")
        assert len(searching.bodies) == 2
        row = await searching.gateway.row()
        assert row.state is ExchangeState.UPSTREAM_CUT
        assert row.web_searches == 1
        assert row.usage_source == "estimated"
        assert row.input_tokens >= 200


async def test_a_later_round_that_always_fails(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, LOOK, search()), failing())
        answer = await searching.gateway.post(MESSAGES, **search_tool(MESSAGES))
        assert answer.status in (502, 503, 529)
        row = await searching.gateway.row()
        assert row.state is ExchangeState.ERROR
        assert len(searching.bodies) == 3


async def test_a_later_round_that_is_refused(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT, accounts=2) as searching:
        refused = json_response({"error": {"message": "bad", "type": "invalid_request_error"}}, 400)
        searching.upstream.respond_with(model_reply(CHAT, search()), refused)
        answer = await searching.gateway.post(MESSAGES, **search_tool(MESSAGES))
        assert answer.status == 400
        assert len(searching.bodies) == 2


async def test_the_first_round_fails_over(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT, accounts=2) as searching:
        searching.upstream.respond_with(
            event_stream(b""), model_reply(CHAT, search()), model_reply(CHAT, ANSWER)
        )
        reply, (row,) = await ask(searching.gateway)
        assert reply.parts[-1] == Text(ANSWER)
        assert row.attempts == 2
        assert len(searching.endpoint.requests) == 1


async def test_a_slow_client_does_not_lose_anything(gateway_of_module: RunningGateway) -> None:
    text = "word " * 20_000
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, LOOK, search()), model_reply(CHAT, text))
        gateway = searching.gateway
        body = request_body(MESSAGES, stream=True) | search_tool(MESSAGES)
        headers = {"authorization": f"Bearer {gateway.key}", "anthropic-version": "2023-06-01"}
        raw = b""
        async with gateway.http.post("/v1/messages", json=body, headers=headers) as response:
            await asyncio.sleep(0.3)
            async for chunk in response.content.iter_any():
                raw += chunk
        assert parse_stream(MESSAGES, raw).parts[-1] == Text(text)


@pytest.mark.parametrize("stream", [True, False])
async def test_usage_that_the_upstream_does_not_report(
    gateway_of_module: RunningGateway, stream: bool
) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(
            by_frame(model_reply(CHAT, LOOK, search(), usage=None)),
            by_frame(model_reply(CHAT, ANSWER, usage=None)),
        )
        answer = await searching.gateway.post(MESSAGES, stream=stream, **search_tool(MESSAGES))
        assert answer.status == 200
        row = await searching.gateway.row()
        assert (row.usage_source, row.web_searches) == ("estimated", 1)
        assert row.input_tokens > 0 and row.output_tokens > 0


@pytest.mark.parametrize("upstream_format", list(Format))
async def test_an_upstream_that_does_not_stream(
    gateway_of_module: RunningGateway, upstream_format: Format
) -> None:
    async with searching_gateway(gateway_of_module, upstream_format) as searching:
        searching.upstream.respond_with(
            model_reply(upstream_format, LOOK, search(), stream=False),
            model_reply(upstream_format, ANSWER, stream=False),
        )
        reply, (row,) = await ask(searching.gateway)
        assert [type(part) for part in reply.parts] == [
            *(Text, ServerToolCall, ServerToolResult, Text)
        ]
        assert (row.input_tokens, row.web_searches) == (200, 1)


async def test_the_price_of_searches(gateway_of_module: RunningGateway) -> None:
    money = {"web_searches": 10_000}
    async with searching_gateway(gateway_of_module, CHAT, money=money) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, search("a", "c1"), search("b", "c2")), model_reply(CHAT, ANSWER)
        )
        _, (row,) = await ask(searching.gateway)
        searching.upstream.respond_with(model_reply(CHAT, ANSWER))
        await searching.gateway.post(MESSAGES)
        _, plain = await searching.gateway.rows(2)
        tokens = row.input_tokens + row.output_tokens
        per_token = plain.cost_micro / (plain.input_tokens + plain.output_tokens)
        assert row.cost_micro == pytest.approx(tokens * per_token + 2 * 10 * 1_000_000)
        assert "1000 searches 10000" in row.tariff


@pytest.mark.parametrize(("tokens", "dollars"), [(150, 200), (99, 400)])
async def test_each_round_has_the_price_of_its_own_length(
    gateway_of_module: RunningGateway, tokens: int, dollars: int
) -> None:
    """Two rounds of 100 tokens."""
    long = [{"tokens": tokens, "input": 2, "output": 0}]
    price = {"input": 1, "output": 0, "above": long, "service_tiers": {"priority": 5}}
    models = [{"id": ALPHA, "family": "alpha", "price": price}]
    line = {"models": {ALPHA: "m"}}
    async with searching_gateway(gateway_of_module, CHAT, models=models, line=line) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, LOOK, search()), model_reply(CHAT, ANSWER)
        )
        _, (row,) = await ask(searching.gateway)
        assert (row.input_tokens, row.usd_micro) == (200, dollars)


@pytest.mark.parametrize("shape", STREAM_VARIANTS)
async def test_however_the_rounds_arrive(gateway_of_module: RunningGateway, shape: str) -> None:
    vary = STREAM_VARIANTS[shape]
    weather = ToolCall("call_w", "get_weather", '{"city":"Oslo"}')
    tools = [*TOOLS[MESSAGES], *search_tool(MESSAGES)["tools"]]
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(
            vary(model_reply(CHAT, LOOK, search("a", "c1"), search("b", "c2"))),
            vary(model_reply(CHAT, "Hm.", weather, search("c", "c3"))),
        )
        reply, (row,) = await ask(searching.gateway, tools=tools)
        assert [type(part) for part in reply.parts] == [
            *(Text, ServerToolCall, ServerToolResult, ServerToolCall, ServerToolResult),
            *(Text, ToolCall, ServerToolCall, ServerToolResult),
        ]
        arguments = [part.arguments for part in reply.parts if isinstance(part, ServerToolCall)]
        assert [orjson.loads(each) for each in arguments] == [{"query": each} for each in "abc"]
        assert (row.web_searches, row.input_tokens) == (3, 200)


async def test_signed_reasoning_returns_to_its_upstream(gateway_of_module: RunningGateway) -> None:
    signature = ProviderData(MESSAGES, "c2ln")
    async with searching_gateway(gateway_of_module, MESSAGES) as searching:
        searching.upstream.respond_with(
            model_reply(MESSAGES, Thinking("Hm.", signature), search()),
            model_reply(MESSAGES, ANSWER),
        )
        reply, _ = await ask(searching.gateway)
        assert reply.parts[0] == Thinking("Hm.", signature)
        _, assistant, result = searching.bodies[1]["messages"]
        kinds = [block["type"] for block in assistant["content"]]
        assert kinds == ["thinking", "tool_use"]
        assert assistant["content"][0]["signature"] == "c2ln"
        assert result["content"][0]["type"] == "tool_result"


async def test_max_tokens_of_all_rounds(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, MESSAGES) as searching:
        searching.upstream.respond_with(model_reply(MESSAGES, search()))
        reply, _ = await ask(searching.gateway, max_tokens=25)
        assert [body["max_tokens"] for body in searching.bodies] == [25, 15, 5]
        assert reply.stop is StopReason.MAX_TOKENS


async def test_pings_during_a_long_search(gateway_of_module: RunningGateway) -> None:
    server = {"commit_after": 0.2}
    async with searching_gateway(gateway_of_module, CHAT, server=server) as searching:
        searching.endpoint.respond_with(found().with_changes(delay=0.8))
        searching.upstream.respond_with(model_reply(CHAT, search()), model_reply(CHAT, ANSWER))
        reply, (row,) = await ask(searching.gateway)
        assert results(reply) == [[page["url"] for page in PAGES]]
        assert row.state is ExchangeState.OK


async def test_a_drain_goes_on_with_the_rounds(gateway_of_module: RunningGateway) -> None:
    line = {"on_disconnect": "drain"}
    async with searching_gateway(gateway_of_module, CHAT, line=line) as searching:
        searching.endpoint.respond_with(found().with_changes(delay=0.4))
        searching.upstream.respond_with(
            model_reply(CHAT, LOOK, search()), model_reply(CHAT, ANSWER)
        )
        gateway = searching.gateway
        body = request_body(MESSAGES, stream=True) | search_tool(MESSAGES)
        headers = {"authorization": f"Bearer {gateway.key}", "anthropic-version": "2023-06-01"}
        response = await gateway.http.post("/v1/messages", json=body, headers=headers)
        await response.content.readany()
        await searching.endpoint.wait_for_request()
        response.close()
        row = await gateway.row()
        assert (row.input_tokens, row.output_tokens, row.web_searches) == (200, 20, 1)
        assert (row.state, row.usage_source) == (ExchangeState.CLIENT_GONE, "upstream")


async def test_the_gateway_stops_during_a_search(tmp_path: Path) -> None:
    async with searching_gateway(tmp_path, CHAT, server={"drain_timeout": 0.2}) as searching:
        searching.endpoint.respond_with(Response(chunks=(b"{",), ending=Ending.STALLED))
        searching.upstream.respond_with(model_reply(CHAT, LOOK, search()))
        asking = asyncio.ensure_future(
            searching.gateway.post(MESSAGES, stream=True, **search_tool(MESSAGES))
        )
        await searching.endpoint.wait_for_request()
        await asyncio.sleep(0.4)  # the reply has begun
        abort_all(searching.gateway.daemon.runtime)
        async with asyncio.timeout(5):
            answer = await asking
        raw = await answer.read()
        assert raw.rstrip().rpartition(b"event: ")[2].startswith(b"error")


async def test_searches_of_all_requests_share_the_slots(gateway_of_module: RunningGateway) -> None:
    calls = [search(f"query {n}", f"call_{n}") for n in range(4)]
    async with searching_gateway(gateway_of_module, CHAT, search={"concurrency": 2}) as searching:
        searching.endpoint.respond_with(found().with_changes(delay=0.1))
        searching.upstream.respond_with(model_reply(CHAT, *calls), model_reply(CHAT, ANSWER))
        await ask(searching.gateway)
        assert len(searching.endpoint.requests) == 4
        assert searching.endpoint.connections == 2


async def test_the_endpoints_secrets_are_sent(gateway_of_module: RunningGateway) -> None:
    settings = {"key": "search-secret-key-1", "headers": {"X-Team": "gateway"}}
    async with searching_gateway(gateway_of_module, CHAT, search=settings) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, search()), model_reply(CHAT, "It is search-secret-key-1.")
        )
        await ask(searching.gateway)
        headers = searching.endpoint.last_request.headers
        assert headers["authorization"] == "Bearer search-secret-key-1"
        assert (headers["x-team"], headers["accept"]) == ("gateway", "application/json")
        assert "upstream-secret" not in str(headers)
        redact = searching.gateway.daemon.runtime.current.redactor.redact_all
        host = searching.endpoint.address
        assert "search-secret" not in redact(f"search-secret-key-1 at {host}")
        assert host not in redact(f"at {host}")


@pytest.mark.parametrize("traits", [{"web_search": False}, {}])
async def test_a_chat_client_sees_the_answer(
    gateway_of_module: RunningGateway, traits: Any
) -> None:
    async with searching_gateway(gateway_of_module, CHAT, line={"traits": traits}) as searching:
        answer = f"See {PAGES[0]['url']}."
        searching.upstream.respond_with(
            model_reply(CHAT, LOOK, search()), model_reply(CHAT, answer)
        )
        reply = await searching.gateway.post(CHAT, **search_tool(CHAT))
        (choice,) = (await reply.json())["choices"]
        assert choice["message"]["content"].endswith(answer)
        assert "tool_calls" not in choice["message"]
        (annotation,) = choice["message"]["annotations"]
        assert annotation["url_citation"]["url"] == PAGES[0]["url"]
        assert "web_search_options" not in searching.bodies[0]


async def test_a_chat_upstream_that_searches(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """By its trait; without an endpoint of the gateway also where nothing is known of it."""
    line = {"traits": {"web_search": True}}
    async with searching_gateway(tmp_path, CHAT, line=line) as searching:
        searching.upstream.respond_with(model_reply(CHAT, ANSWER))
        _, (row,) = await ask(searching.gateway, CHAT)
        assert searching.bodies[0]["web_search_options"] == {}
        assert row.lane == "native"
    upstream.respond_with(model_reply(CHAT, ANSWER, stream=False))
    async with run_gateway(tmp_path / "2", [channel(CHAT, upstream.address)]) as gateway:
        assert (await gateway.post(CHAT, **search_tool(CHAT))).status == 200
        assert upstream.last_request.json["web_search_options"] == {}


async def test_a_chat_upstream_without_a_search(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    line = channel(CHAT, upstream.address) | {"traits": {"web_search": False}}
    upstream.respond_with(model_reply(CHAT, ANSWER, stream=False))
    async with run_gateway(tmp_path, [line]) as gateway:
        answer = await gateway.post(CHAT, **search_tool(CHAT))
        assert answer.status == 200
        assert "web_search_options" not in upstream.last_request.json
        assert "web_search" in (await gateway.row()).dropped


async def test_a_stored_response_with_a_search(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(
            model_reply(CHAT, search()), model_reply(CHAT, ANSWER), model_reply(CHAT, "Yes.")
        )
        first = await searching.gateway.post(RESPONSES, **search_tool(RESPONSES))
        id = (await first.json())["id"]
        answer = await searching.gateway.post(RESPONSES, previous_response_id=id)
        assert answer.status == 200, await answer.read()
        sent = searching.bodies[2]["messages"]
        assert PAGES[0]["content"] in orjson.dumps(sent).decode()
        assert [each["role"] for each in sent] == [
            *("user", "assistant", "tool", "assistant", "user"),
        ]


async def test_estimates_of_prompts_do_not_learn_from_rounds(
    gateway_of_module: RunningGateway,
) -> None:
    messages = [{"role": "user", "content": "word " * 4000}]
    async with searching_gateway(gateway_of_module, CHAT) as searching:

        async def count() -> int:
            fields = {"path": "/v1/messages/count_tokens", "messages": messages}
            answer = await searching.gateway.post(MESSAGES, **fields)
            return int((await answer.json())["input_tokens"])

        before = await count()
        usage = Usage(input_tokens=before, output_tokens=10)
        for _ in range(8):
            searching.upstream.respond_with(
                model_reply(CHAT, search(), usage=usage), model_reply(CHAT, ANSWER, usage=usage)
            )
            await ask(searching.gateway, messages=messages)
        assert await count() == before


async def test_a_search_that_may_not_be_live(gateway_of_module: RunningGateway) -> None:
    async with searching_gateway(gateway_of_module, CHAT) as searching:
        searching.upstream.respond_with(model_reply(CHAT, ANSWER))
        _, (row,) = await ask(searching.gateway, RESPONSES, options={"external_web_access": False})
        assert "tools" not in searching.bodies[0]
        assert row.dropped == "web_search"


@pytest.mark.parametrize("client_format", list(Format))
async def test_a_declared_search_never_reaches_an_upstream_without_one(
    gateway_of_module: RunningGateway, client_format: Format
) -> None:
    """Even where the model may not use it."""
    choice: Any = {"type": "none"} if client_format is MESSAGES else "none"
    tools: dict[str, Any] = {"tools": TOOLS[client_format]}
    own = search_tool(client_format)
    tools = {"tools": [*tools["tools"], *own.get("tools", [])]} | (
        own if client_format is CHAT else {}
    )
    async with searching_gateway(gateway_of_module, client_format) as searching:
        searching.upstream.respond_with(model_reply(client_format, ANSWER))
        fields = tools | {"tool_choice": choice}
        answer = await searching.gateway.post(client_format, stream=True, **fields)
        assert answer.status == 200
        sent = searching.bodies[0]
        assert "web_search_options" not in sent
        kinds = [tool.get("type") for tool in sent["tools"]]
        assert not any(str(kind).startswith("web_search") for kind in kinds)
        assert searching.endpoint.requests == []
