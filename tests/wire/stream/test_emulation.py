"""Which emulations a prompt needs, and their combination."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Begin, Close, Delta, End, Event, Open, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import CallKind, Part, Text, Thinking, ToolCall
from gateway.core.prompt import Prompt, Tool, ToolKind
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.wire.codec import Rendering
from gateway.wire.stream.emulation import event_transformer, transform_reply
from tests.support.grammar import assert_grammar

READ = Tool(kind=ToolKind.FUNCTION, name="read")
PATCH = Tool(kind=ToolKind.CUSTOM, name="patch")
LIST = Tool(kind=ToolKind.FUNCTION, name="list", namespace="files")
USAGE = Usage(input_tokens=7, output_tokens=3)


def prompt(*tools: Tool) -> Prompt:
    return Prompt(format=Format.RESPONSES, model="m", turns=(), tools=tools)


def rendering(**emulated: Any) -> Rendering:
    return Rendering(body={}, **emulated)


def reply(*parts: Part, stop: StopReason = StopReason.END_TURN) -> Reply:
    return Reply(id="r", model="m", parts=parts, stop=stop, usage=USAGE)


def test_most_prompts_need_no_transformer() -> None:
    assert event_transformer(prompt(), rendering()) is None
    assert event_transformer(prompt(READ), rendering(stop=("",))) is None
    complete = reply(Text("hi"))
    assert transform_reply(complete, prompt(READ), rendering()) is complete


def test_complete_reply() -> None:
    complete = reply(
        Thinking("hm"),
        ToolCall("1", "files__list", "{}"),
        ToolCall("2", "patch", '{"input":"a\\nb"}'),
        stop=StopReason.TOOL_CALL,
    )
    assert transform_reply(complete, prompt(READ, PATCH, LIST), rendering()) == reply(
        Thinking("hm"),
        ToolCall("1", "list", "{}", namespace="files"),
        ToolCall("2", "patch", "a\nb", CallKind.CUSTOM),
        stop=StopReason.TOOL_CALL,
    )


def test_usage_of_a_truncated_complete_reply_is_kept() -> None:
    complete = reply(Text("one END two"), ToolCall("1", "read", "{}"), stop=StopReason.TOOL_CALL)
    cut = transform_reply(complete, prompt(READ), rendering(stop=("END",)))
    assert cut == Reply(
        id="r",
        model="m",
        parts=(Text("one "),),
        stop=StopReason.STOP_SEQUENCE,
        usage=USAGE,
        stop_sequence="END",
    )


def test_fences_are_removed_before_stop_sequences_apply() -> None:
    complete = reply(Text('```json\n{"a":1,"b":2}\n```'))
    chained = rendering(fenced=True, stop=("```", ',"b"'))
    restored = transform_reply(complete, prompt(), chained)
    assert (restored.parts, restored.stop_sequence) == ((Text('{"a":1'),), ',"b"')


def test_a_chain_is_finished_when_a_step_is() -> None:
    chain = event_transformer(prompt(PATCH), rendering(stop=("x",)))
    assert chain is not None
    for event in (Begin("r", "m"), Open(0, Text()), Delta(0, "x")):
        assert not chain.finished
        restored = chain.apply(event)
    assert restored == [Close(0), End(StopReason.STOP_SEQUENCE, None, "x")]
    assert chain.finished
    assert chain.apply(Close(0)) == []


PARTS = st.lists(
    st.builds(Text, st.text("`json\n{}ab"))
    | st.builds(Thinking, st.text("ab"))
    | st.builds(
        ToolCall,
        st.just("c"),
        st.sampled_from(["read", "patch", "files__list", "json"]),
        st.sampled_from(["", "{}", '{"input":"x"}', '{"input":"', "x"]),
    ),
    max_size=4,
)


@given(
    PARTS,
    st.builds(
        Rendering,
        body=st.just({}),
        stop=st.lists(st.text("ab", max_size=2), max_size=2).map(tuple),
        json_tool=st.none() | st.just("json"),
        fenced=st.booleans(),
    ),
    st.lists(st.sampled_from([READ, PATCH, LIST])),
)
def test_transformed_events_obey_the_grammar(
    parts: list[Part], emulated: Rendering, tools: list[Tool]
) -> None:
    complete = reply(*parts)
    chain = event_transformer(prompt(*tools), emulated)
    if chain is not None:
        restored: list[Event] = [
            after for event in reply_events(complete) for after in chain.apply(event)
        ]
        assert_grammar(restored)
        assert (
            collect_reply(restored).parts
            == transform_reply(complete, prompt(*tools), emulated).parts
        )
