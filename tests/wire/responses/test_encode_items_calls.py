"""Calls, searches and unknown items for a responses client."""

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
    encode_events,
    event_data,
    message,
    new_encoder,
    output,
    parts_of,
    text_part,
)
from tests.wire.stream_cases import decode


def test_calls() -> None:
    native = ProviderData(Format.RESPONSES, {"id": "fc_7"})
    assert output(
        (ToolCall("c1", "f", namespace="n", extra=native), "{}"),
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


def test_native_call_fields() -> None:
    encoder = new_encoder()
    native = ProviderData(Format.RESPONSES, {"async": True})
    raw = b"".join(map(encoder.encode, parts_of((ToolCall("c1", "f", extra=native), "{}"))))
    assert event_data(raw)[2]["item"]["async"] is True


def test_interleaved_calls() -> None:
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
    raw, encoder = encode_events(events, StopReason.TOOL_CALL)
    assert [item["arguments"] for item in encoder.response["output"]] == ['{"a":1}', "{}"]
    again = decode(ResponsesDecoder(), raw)
    assert to_json(again[1:]) == to_json(
        [*events[1:], End(StopReason.TOOL_CALL, USAGE, service_tier="default")]
    )


def test_client_tool_call() -> None:
    tools = tuple(parse_tools([{"type": "shell"}, {"type": "function", "name": "f"}], "tools"))
    request = Prompt(format=Format.RESPONSES, model="m", turns=(), tools=tools)
    raw, encoder = encode_events(
        parts_of((ToolCall("toolu_1", "shell"), '{"commands":', '["ls"]}')),
        StopReason.TOOL_CALL,
        request,
    )
    item = {"id": "sh_gw_a1_0", "call_id": "toolu_1", "type": "shell_call"}
    done = item | {"action": {"commands": ["ls"]}, "status": "completed"}
    assert encoder.response["output"] == [done]
    assert event_data(raw)[2:4] == [
        {
            "type": "output_item.added",
            "output_index": 0,
            "item": item | {"action": {"commands": []}, "status": "in_progress"},
        },
        {"type": "output_item.done", "output_index": 0, "item": done},
    ]
    plain = Tool(kind=ToolKind.FUNCTION, name="shell")
    request = Prompt(format=Format.RESPONSES, model="m", turns=(), tools=(plain,))
    (call,) = output((ToolCall("c1", "shell"), "{}"), request=request)
    assert call["type"] == "function_call"


RESULT = ProviderData(
    Format.MESSAGES,
    {"content": [{"url": "https://a.org"}, {"url": "https://b.org"}, {"url": "https://a.org"}]},
)


def test_search_of_another_format() -> None:
    raw, encoder = encode_events(
        parts_of(
            (ServerToolCall("srch_1", "web_search"), '{"query":', '"Oslo"}'),
            (ServerToolResult("srch_1", "web_search", RESULT),),
            (Text(), "A"),
        )
    )
    item = {"id": "ws_gw_a1_0", "type": "web_search_call"}
    sources = [{"type": "url", "url": "https://a.org"}, {"type": "url", "url": "https://b.org"}]
    action = {"type": "search", "query": "Oslo", "queries": ["Oslo"], "sources": sources}
    place = {"item_id": "ws_gw_a1_0", "output_index": 0}
    begun = item | {"status": "in_progress", "action": {"type": "search", "query": ""}}
    assert event_data(raw)[2:7] == [
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
    assert encoder.dropped == set()


def test_search_without_result() -> None:
    first, second = output(
        (ServerToolCall("s1", "web_search", "nonsense"),),
        (ServerToolCall("s2", "web_search"), '{"query":"Oslo"}'),
    )
    empty = {"type": "search", "query": "", "queries": [""], "sources": []}
    assert first["action"] == empty
    assert second["action"] == empty | {"query": "Oslo", "queries": ["Oslo"]}


def test_native_items() -> None:
    item = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "aW1n"}
    assert output(
        (UnknownPart("image_generation_call", ProviderData(Format.RESPONSES, item)),),
        (UnknownPart("image_generation_call", ProviderData(Format.RESPONSES, item)),),
    ) == [item, item | {"id": "ig_gw_a1_1"}]


def test_dropped_parts() -> None:
    foreign = ProviderData(Format.MESSAGES, {"type": "container_upload"})
    _, encoder = encode_events(
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
    assert encoder.dropped == {
        "container_upload",
        "code_execution",
        "web_search",
        "image",
        "audio",
    }
    assert encoder.response["output"] == [message(text_part("A"))]
