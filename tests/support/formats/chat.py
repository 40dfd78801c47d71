"""The strict grammar of chat replies, as streams and whole. Independent of the gateway.

Public format: Chat Completions, "The chat completion chunk object". Narrower than that: role, ids
and names come once, lists come in one delta, the finish has a chunk of its own, and usage
comes last and only where it was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import orjson
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.support.formats.frames import (
    DONE,
    Object,
    has_fields,
    is_count,
    is_text,
    strict_frames,
)
from tests.support.formats.reply import Reply, UsageCounts

_LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_FINISHES: Final = {"stop", "length", "tool_calls", "content_filter"}
_MAY_CUT_A_CALL: Final = {"length", "content_filter"}
_TEXTS: Final = {"content", "refusal", "reasoning_content"}
_LISTS: Final = {"annotations", "reasoning_details"}
_CHUNK: Final = {"id", "object", "created", "model", "choices"}
_MORE: Final = {"usage", "system_fingerprint", "service_tier", "moderation"}
_KINDS: Final = {"function": "arguments", "custom": "input"}
"""The kinds of calls, and the field with what the model says to the tool."""


def check(raw: bytes, *, errored: bool = False, include_usage: bool | None = None) -> Object:
    """The whole reply, or what came of it. `include_usage`: whether the client asked for usage;
    None where that is not known."""
    stream = _Stream(include_usage)
    for name, data in strict_frames(raw):
        assert name is None, "an event line: stock helpers break on any name"
        if isinstance(data, dict):
            stream.take(data)
        elif data == DONE:
            stream.done()
    stream.close(errored=errored)
    return stream.body()


def check_events(events: Iterable[Object], *, include_usage: bool | None = None) -> Object:
    """The whole reply of a stream's chunks, of which a library gives no `[DONE]`."""
    stream = _Stream(include_usage)
    for event in events:
        stream.take(event)
    stream.done()
    return stream.body()


def check_body(body: Object) -> None:
    ChatCompletion.model_validate(body)
    has_fields(body, _CHUNK, _MORE)
    assert body["object"] == "chat.completion"
    _check_head(body)
    (choice,) = body["choices"]
    has_fields(choice, {"index", "message", "logprobs", "finish_reason"})
    assert choice["index"] == 0
    message = has_fields(
        choice["message"],
        {"role", "content", "refusal"},
        {"annotations", "tool_calls", "reasoning_content", "reasoning_details", "function_call"},
    )
    assert message["role"] == "assistant"
    for name in _TEXTS:
        assert isinstance(message.get(name), str | None), f"{name} that is no text"
    content = message["content"] or ""
    _check_lists(message, len(content))
    result = _check_calls(message, cut=choice["finish_reason"] in _MAY_CUT_A_CALL)
    assert result or message["content"] is not None or message["refusal"], "nothing, not even text"
    _check_finish(choice["finish_reason"], called=result)
    _check_usage(body["usage"])


def reply_of(body: Object) -> Reply:
    (choice,) = body["choices"]
    message = choice["message"]
    cited = [annotation["url_citation"] for annotation in message.get("annotations") or ()]
    return Reply(
        text=message.get("content") or "",
        stop=choice["finish_reason"],
        model=body["model"],
        thinking=message.get("reasoning_content") or "",
        refusal=message.get("refusal"),
        calls=tuple(
            (call["id"], call["function"]["name"], orjson.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ),
        sources=tuple((citation["url"], citation["title"]) for citation in cited),
        usage=_counts(body["usage"]) if body.get("usage") else None,
        body=body,
    )


def _counts(usage: Object) -> UsageCounts:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    read = usage["prompt_tokens_details"]
    return UsageCounts(
        input=usage["prompt_tokens"],
        cached=read["cached_tokens"],
        kept=read.get("cache_write_tokens", 0),
        output=usage["completion_tokens"],
        thinking=usage["completion_tokens_details"]["reasoning_tokens"],
    )


class _Stream:
    def __init__(self, include_usage: bool | None) -> None:
        self._include_usage = include_usage
        self._head: tuple[object, ...] | None = None
        self._calls: list[_Call] = []
        self._message: Object = {"role": "assistant", "content": None, "refusal": None}
        self._finish: str | None = None
        self._usage: Any = None
        self._done = False
        self._errored = False

    def take(self, data: Object) -> None:
        assert not self._done, "a chunk after [DONE]"
        assert not self._errored, "a chunk after an error"
        if "error" in data:
            self._fail(data)
            return
        if not _calls_a_custom_tool(data):  # which the stock types know in whole replies alone
            ChatCompletionChunk.model_validate(data)
        has_fields(data, _CHUNK, _MORE)
        assert data["object"] == "chat.completion.chunk"
        head = _check_head(data)
        assert self._head in (None, head), f"another head: {head}"
        assert isinstance(data["choices"], list), "choices that are no list"
        if data["choices"]:
            self._choose(data)
        else:
            self._count(data)
        self._head = head

    def done(self) -> None:
        assert not self._done, "[DONE] twice"
        assert not self._errored, "[DONE] after an error"
        assert self._finish is not None, "[DONE] without a finish reason"
        if self._include_usage is not None:
            counted = self._usage is not None
            assert counted == self._include_usage, "usage missing, or not asked for"
        self._done = True

    def close(self, *, errored: bool) -> None:
        assert self._done or self._errored, "the stream came to no end"
        assert self._errored == errored, "a proper end" if errored else "an error"

    def body(self) -> Object:
        """The whole reply that the chunks make."""
        id, _, created, model = self._head or (None,) * 4
        calls = [call.whole for call in self._calls]
        message = self._message | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        head = {"id": id, "object": "chat.completion", "created": created, "model": model}
        return {**head, "choices": [choice], "usage": self._usage}

    def _fail(self, data: Object) -> None:
        error = has_fields(data, {"error"})["error"]
        has_fields(error, {"message", "type", "param", "code"})
        is_text(error["message"], "error.message")
        is_text(error["type"], "error.type")
        assert self._finish is None, "an error after the finish"
        self._errored = True

    def _choose(self, data: Object) -> None:
        assert data.get("usage") is None, "usage beside a choice"
        assert "usage" not in data or self._include_usage is not False, "usage not asked for"
        (choice,) = data["choices"]
        has_fields(choice, {"index", "delta", "finish_reason"}, {"logprobs"})
        assert choice["index"] == 0, f"choice {choice['index']}"
        assert self._finish is None, "a delta after the finish"
        delta = choice["delta"]
        if self._head is None:
            _check_first(delta)
            assert choice["finish_reason"] is None, "a finish on the first chunk"
        elif (finish := choice["finish_reason"]) is not None:
            assert delta == {}, f"a finish on a delta: {delta}"
            self._end(finish)
        else:
            self._grow(delta)

    def _grow(self, delta: Object) -> None:
        has_fields(delta, (), _TEXTS | _LISTS | {"tool_calls"}, "delta")
        message = self._message
        for name in _TEXTS & set(delta):
            message[name] = (message.get(name) or "") + is_text(delta[name], name)
        for name in _LISTS & set(delta):
            assert name not in message, f"{name} in two deltas"
            assert delta[name], f"{name} without an entry"
            message[name] = delta[name]
        _check_lists(delta, len(message["content"] or ""))
        for entry in delta.get("tool_calls", ()):
            self._call(entry)
        assert delta.get("tool_calls", True), "tool_calls without an entry"

    def _call(self, entry: Object) -> None:
        index = entry["index"]
        assert 0 <= index <= len(self._calls), f"call {index} out of order"
        if index < len(self._calls):
            self._calls[index].grow(entry)
            return
        call = _Call(entry)
        assert call.id not in {other.id for other in self._calls}, f"two calls {call.id}"
        self._calls.append(call)

    def _end(self, finish: str) -> None:
        _check_finish(finish, called=bool(self._calls))
        for call in self._calls:
            assert call.arguments or finish in _MAY_CUT_A_CALL or call.kind == "custom", (
                f"{call.id} without arguments"
            )
        self._finish = finish

    def _count(self, data: Object) -> None:
        assert self._finish is not None, "usage before the finish"
        assert self._usage is None, "usage twice"
        _check_usage(data.get("usage"))
        self._usage = data["usage"]


class _Call:
    """One tool call while it arrives."""

    def __init__(self, entry: Object) -> None:
        kind = entry.get("type")
        assert kind in _KINDS, f"a call of type {kind!r}"
        has_fields(entry, {"index", "id", "type", kind}, (), "the start of a call")
        result = has_fields(entry[kind], {"name", _KINDS[kind]}, (), "the start of a call")
        assert _LEGAL.match(entry["id"]), f"an illegal id: {entry['id']!r}"
        is_text(result["name"], "name", empty=True)
        assert result[_KINDS[kind]] == "", "arguments on the start of a call"
        self.kind: str = kind
        self.id: str = entry["id"]
        self.whole = {"id": self.id, "type": kind, kind: dict(result)}

    @property
    def arguments(self) -> str:
        """The arguments or the input of the call."""
        return str(self.whole[self.kind][_KINDS[self.kind]])

    def grow(self, entry: Object) -> None:
        has_fields(entry, {"index", self.kind}, (), "a piece of a call")
        result = has_fields(entry[self.kind], {_KINDS[self.kind]}, (), "a piece of a call")
        self.whole[self.kind][_KINDS[self.kind]] += is_text(
            result[_KINDS[self.kind]], "a piece of a call"
        )


def _calls_a_custom_tool(data: Object) -> bool:
    return any(
        entry.get("type") == "custom" or "custom" in entry
        for choice in data.get("choices") or ()
        for entry in (choice.get("delta") or {}).get("tool_calls") or ()
    )


def _check_head(data: Object) -> tuple[object, ...]:
    assert is_text(data["id"], "id").startswith("chatcmpl-"), f"the id is {data['id']}"
    assert type(data["created"]) is int
    is_text(data["model"], "model")
    return data["id"], data["object"], data["created"], data["model"]


def _check_first(delta: Object) -> None:
    has_fields(delta, {"role", "content"}, {"refusal"}, "the first delta")
    assert (delta["role"], delta["content"]) == ("assistant", ""), f"the first delta: {delta}"
    assert delta.get("refusal") is None


def _check_lists(holder: Object, length: int) -> None:
    """Entries are numbered, and what is cited stands in the `length` characters of content."""
    for name in _LISTS:
        entries = holder.get(name) or []
        assert isinstance(entries, list)
        if "role" not in holder:  # whole replies need no numbers
            assert [entry.get("index") for entry in entries] == list(range(len(entries))), name
    for entry in holder.get("annotations") or []:
        assert entry["type"] == "url_citation"
        cited = has_fields(entry["url_citation"], {"start_index", "end_index", "title", "url"})
        is_text(cited["url"], "url")
        is_text(cited["title"], "title", empty=True)
        assert 0 <= cited["start_index"] <= cited["end_index"] <= length, f"offsets of {cited}"
    for entry in holder.get("reasoning_details") or []:
        match entry["type"]:
            case "reasoning.text":
                has_fields(entry, {"type", "index"}, {"text", "signature"})
                assert entry.get("text") or entry.get("signature"), "a detail of nothing"
            case "reasoning.encrypted":
                is_text(has_fields(entry, {"type", "index", "data"})["data"], "data")
            case kind:
                raise AssertionError(f"a reasoning detail of type {kind}")


def _check_calls(message: Object, *, cut: bool) -> bool:
    """Whether there are any."""
    if "tool_calls" not in message:
        return False
    assert message["tool_calls"], "an empty list of calls"
    ids = [entry["id"] for entry in message["tool_calls"]]
    assert len(ids) == len(set(ids)), f"two calls of one id: {ids}"
    for entry in message["tool_calls"]:
        kind = entry["type"]
        has_fields(entry, {"id", "type", kind})
        assert _LEGAL.match(entry["id"]), f"an illegal id: {entry['id']!r}"
        result = has_fields(entry[kind], {"name", _KINDS[kind]})
        is_text(result[_KINDS[kind]], "arguments", empty=cut or kind == "custom")
    return True


def _check_finish(finish: object, *, called: bool) -> None:
    assert finish in _FINISHES, f"finish reason {finish!r}"
    assert not called or finish != "stop", "stop although a tool was called"
    assert called or finish != "tool_calls", "tool_calls although no tool was called"


def _check_usage(usage: object) -> None:
    known = has_fields(
        usage,
        {
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
        },
        (),
        "usage",
    )
    prompt, completion = (is_count(known[f"{side}_tokens"]) for side in ("prompt", "completion"))
    assert known["total_tokens"] == prompt + completion, f"the total of {known}"
    for side in ("prompt", "completion"):
        for name, value in known[f"{side}_tokens_details"].items():
            is_count(value, name)
    read = known["prompt_tokens_details"]
    assert read["cached_tokens"] + read.get("cache_write_tokens", 0) <= prompt, f"cached: {known}"
    assert read["audio_tokens"] == 0
    result = known["completion_tokens_details"]
    assert result["reasoning_tokens"] <= completion, f"more reasoning than output: {known}"
    assert result["audio_tokens"] == 0
