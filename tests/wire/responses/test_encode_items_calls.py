"""Calls, searches and items of unknown types as a responses client gets them."""

from __future__ import annotations

from gateway.core.events import Begin, Close, Delta, End, Event, Open, StopReason
from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CallKind,
    Image,
    ProviderData,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    ToolCall,
    UnknownPart,
)
from gateway.core.prompt import Prompt, Tool, ToolKind
from gateway.wire.responses.decode import ResponsesDecoder
from gateway.wire.responses.tools import parse_tools
from tests.support.fixture_json import to_json
from tests.wire.responses.encoding import (
    USAGE,
    encoded,
    encoder,
    message,
    output,
    parts_of,
    told,
    words,
)
from tests.wire.stream_cases import decode


def test_calls_of_every_kind() -> None:
    own = ProviderData(Format.RESPONSES, {"id": "fc_7"})
    assert output(
        (ToolCall("c1", "f", namespace="n", extra=own), "{}"),
        (ToolCall("c2", "p", kind=CallKind.CUSTOM), "*** ", "Begin"),
        (ToolCall("c3", "q", kind=CallKind.CUSTOM),),
        (ToolCall("c4", "g", '{"a":', extra=ProviderData(Format.MESSAGES, {"caller": 1})), "1}"),
    ) == [
        {
            "id": "fc_7",
            "type": "function_call",
            "status": "completed",
            "call_id": "c1",
            "name": "f",
            "namespace": "n",
            "arguments": "{}",
        },
        {
            "id": "ctc_gw_a1_2",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c2",
            "name": "p",
            "input": "*** Begin",
        },
        {
            "id": "ctc_gw_a1_4",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c3",
            "name": "q",
            "input": "",
        },
        {
            "id": "fc_gw_a1_6",
            "type": "function_call",
            "status": "completed",
            "call_id": "c4",
            "name": "g",
            "arguments": '{"a":1}',
        },
    ]


def test_what_this_format_alone_says_of_a_call() -> None:
    speaker = encoder()
    own = ProviderData(Format.RESPONSES, {"async": True})
    raw = b"".join(map(speaker.encode, parts_of((ToolCall("c1", "f", extra=own), "{}"))))
    assert told(raw)[2]["item"]["async"] is True


def test_interleaved_calls_stay_interleaved() -> None:
    events: list[Event] = [
        Begin("", ""),
        Open(0, ToolCall("c1", "f")),
        Open(1, ToolCall("c2", "g")),
        Delta(0, '{"a":'),
        Delta(1, "{}"),
        Close(1),
        Delta(0, "1}"),
        Close(0),
    ]
    raw, speaker = encoded(events, StopReason.TOOL_CALL)
    assert [item["arguments"] for item in speaker.response["output"]] == ['{"a":1}', "{}"]
    again = decode(ResponsesDecoder(), raw)
    assert to_json(again[1:]) == to_json([*events[1:], End(StopReason.TOOL_CALL, USAGE)])


def test_a_tool_that_the_client_knows_by_its_type() -> None:
    tools = tuple(parse_tools([{"type": "shell"}, {"type": "function", "name": "f"}], "tools"))
    asked = Prompt(format=Format.RESPONSES, model="m", turns=(), tools=tools)
    raw, speaker = encoded(
        parts_of((ToolCall("toolu_1", "shell"), '{"commands":', '["ls"]}')),
        StopReason.TOOL_CALL,
        asked,
    )
    item = {"id": "sh_gw_a1_0", "call_id": "toolu_1", "type": "shell_call"}
    done = item | {"action": {"commands": ["ls"]}, "status": "completed"}
    assert speaker.response["output"] == [done]
    assert told(raw)[2:4] == [
        {
            "type": "output_item.added",
            "output_index": 0,
            "item": item | {"action": {"commands": []}, "status": "in_progress"},
        },
        {"type": "output_item.done", "output_index": 0, "item": done},
    ]
    plain = Tool(kind=ToolKind.FUNCTION, name="shell")
    asked = Prompt(format=Format.RESPONSES, model="m", turns=(), tools=(plain,))
    (call,) = output((ToolCall("c1", "shell"), "{}"), asked=asked)
    assert call["type"] == "function_call"


FOUND = ProviderData(
    Format.MESSAGES,
    {"content": [{"url": "https://a.org"}, {"url": "https://b.org"}, {"url": "https://a.org"}]},
)


def test_a_search_that_another_format_ran() -> None:
    raw, speaker = encoded(
        parts_of(
            (ServerToolCall("srch_1", "web_search"), '{"query":', '"Oslo"}'),
            (ServerToolResult("srch_1", "web_search", FOUND),),
            (Text(), "A"),
        )
    )
    item = {"id": "ws_gw_a1_0", "type": "web_search_call"}
    found = [{"type": "url", "url": "https://a.org"}, {"type": "url", "url": "https://b.org"}]
    action = {"type": "search", "query": "Oslo", "queries": ["Oslo"], "sources": found}
    place = {"item_id": "ws_gw_a1_0", "output_index": 0}
    begun = item | {"status": "in_progress", "action": {"type": "search", "query": ""}}
    assert told(raw)[2:7] == [
        {"type": "output_item.added", "output_index": 0, "item": begun},
        place | {"type": "web_search_call.in_progress"},
        place | {"type": "web_search_call.searching"},
        place | {"type": "web_search_call.completed"},
        {
            "type": "output_item.done",
            "output_index": 0,
            "item": item | {"status": "completed", "action": action},
        },
    ]
    assert speaker.dropped == set()


def test_a_search_without_a_result() -> None:
    first, second = output(
        (ServerToolCall("s1", "web_search", "nonsense"),),
        (ServerToolCall("s2", "web_search"), '{"query":"Oslo"}'),
    )
    empty = {"type": "search", "query": "", "queries": [""], "sources": []}
    assert first["action"] == empty
    assert second["action"] == empty | {"query": "Oslo", "queries": ["Oslo"]}


def test_items_of_this_format_alone() -> None:
    item = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "aW1n"}
    assert output(
        (UnknownPart("image_generation_call", ProviderData(Format.RESPONSES, item)),),
        (UnknownPart("image_generation_call", ProviderData(Format.RESPONSES, item)),),
    ) == [item, item | {"id": "ig_gw_a1_1"}]


def test_what_cannot_be_said_is_named() -> None:
    foreign = ProviderData(Format.MESSAGES, {"type": "container_upload"})
    _, speaker = encoded(
        parts_of(
            (UnknownPart("container_upload", foreign),),
            (ServerToolCall("s1", "code_execution"), "{}"),
            (ServerToolResult("s1", "code_execution", foreign),),
            (ServerToolResult("s9", "web_search", foreign),),
            (Image(Source(url="https://example.org/a.png")),),
            (Audio(Source(data="aa")),),
            (Text(), "A"),
        )
    )
    assert speaker.dropped == {"container_upload", "code_execution", "web_search", "image", "audio"}
    assert speaker.response["output"] == [message(words("A"))]
