"""A reply of several rounds: the model calls the search function, the gateway searches, the model
goes on. To the client it is one reply of a server that searches itself.

Pure: `server.search.rounds` sends the requests and searches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from gateway.core.events import Begin, Close, Delta, End, Event, Fail, Open, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import (
    Citation,
    Part,
    ProviderData,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import (
    ChoiceMode,
    Prompt,
    Role,
    Tool,
    ToolChoice,
    ToolKind,
    Turn,
    WebSearch,
)
from gateway.core.value import replace
from gateway.wire.json.fields import Payload, load_object
from gateway.wire.search.calls import QUERY_SCHEMA, WEB_SEARCH
from gateway.wire.search.history import CALL_PREFIX, is_own_search, split_own_searches
from gateway.wire.search.results import MAX_QUERY, SearchResult

_OTHER_NAME: Final = "gateway_web_search"
"""The function, where the client has a tool of the usual name."""
_DESCRIPTION: Final = (
    "Searches the web. The results have titles, addresses and quotations of pages. Cite the "
    "addresses of the pages that the answer rests on."
)
_MAX_CITATIONS: Final = 50
_MAX_QUOTE: Final = 150
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`\[\]]{1,2048}")
_MAX_ADDRESSES: Final = 500
"""Addresses in a text that are looked at."""
_PUNCTUATION: Final = ".,;:!?)}*_|"
_MAX_PUNCTUATION: Final = 8
"""Characters after an address that are not a part of it."""


def function_name(prompt: Prompt) -> str:
    names = {tool.name for tool in prompt.tools if tool.search is None}
    return _OTHER_NAME if WEB_SEARCH in names else WEB_SEARCH


def first_prompt(prompt: Prompt, search: WebSearch) -> Prompt:
    """The prompt with the search as an ordinary function, and searches of its history as calls."""
    name = function_name(prompt)
    function = _function(name, search, prompt.format)
    tools: list[Tool] = []
    choice, has_function = prompt.tool_choice, False
    allowed = choice.allowed if choice is not None else None
    for tool in prompt.tools:
        if allowed is not None and tool.name not in allowed:
            continue
        if tool.search is None:
            tools.append(tool)
        elif not has_function:
            has_function = True
            tools.append(function)
    turns = prompt.turns
    if any(is_own_search(part) for turn in turns for part in turn.parts):
        turns = tuple(_with_calls(turns))
    return replace(
        prompt,
        turns=turns,
        stream=True,
        tools=tuple(tools),
        tool_choice=_choice(choice, prompt.tools, name),
        include=tuple(each for each in prompt.include if not each.startswith(WEB_SEARCH)),
        extra=_without_limit(prompt.extra),
    )


def _with_calls(turns: Iterable[Turn]) -> Iterator[Turn]:
    group: list[Turn] = []
    for turn in turns:
        if turn.role is Role.ASSISTANT:
            group.append(turn)
            continue
        yield from _split(group)
        group = []
        yield turn
    yield from _split(group)


def _split(group: Sequence[Turn]) -> Iterable[Turn]:
    has_search = any(is_own_search(part) for turn in group for part in turn.parts)
    return split_own_searches(group) if has_search else group


def _function(name: str, search: WebSearch, format: Format) -> Tool:
    """Builds the search function, with a definition in the client's format if that is the
    upstream's too."""
    about = _DESCRIPTION
    if search.location:
        about += f" The user is near {', '.join(map(str, search.location.values()))}."
    fields: Payload = {"name": name, "description": about}
    definition: Payload
    match format:
        case Format.MESSAGES:
            definition = fields | {"input_schema": QUERY_SCHEMA}
        case Format.RESPONSES:
            parameters = {"parameters": QUERY_SCHEMA, "strict": False}
            definition = {"type": "function"} | fields | parameters
        case Format.CHAT:
            definition = {"type": "function", "function": fields | {"parameters": QUERY_SCHEMA}}
    return Tool(
        kind=ToolKind.FUNCTION,
        name=name,
        description=about,
        schema=QUERY_SCHEMA,
        definition=ProviderData(format, definition),
    )


def _choice(choice: ToolChoice | None, tools: Sequence[Tool], name: str) -> ToolChoice | None:
    if choice is None or choice.mode is ChoiceMode.PROVIDER_SPECIFIC:
        return choice
    if choice.allowed is not None:
        return ToolChoice(choice.mode)  # no other tools are left
    searches = {tool.name for tool in tools if tool.search is not None}
    if choice.mode is ChoiceMode.NAMED and choice.name in searches:
        return ToolChoice(ChoiceMode.NAMED, name)
    return choice


def _without_limit(extra: ProviderData | None) -> ProviderData | None:
    """Removes the limit of a responses client, which counts no functions."""
    if extra is None or "max_tool_calls" not in extra.data:
        return extra
    rest = {name: value for name, value in extra.data.items() if name != "max_tool_calls"}
    return ProviderData(extra.format, rest)


def next_prompt(
    prompt: Prompt,
    function: str | None,
    parts: Sequence[Part],
    texts: Sequence[str],
    *,
    origin: str,
    may_call: bool,
    max_tokens: int | None,
) -> Prompt:
    """The prompt of the next round: `parts` are the model's of this one, `texts` the results of its
    searches, in their order, calls of `function`, none where the upstream has paused its turn;
    `origin` wrote the reasoning in them. A tool that was forced has been called. `max_tokens` are
    left for it."""
    kept = [replace(part, origin=origin) if isinstance(part, Thinking) else part for part in parts]
    calls = [part for part in kept if isinstance(part, ToolCall) and part.name == function]
    results = tuple(
        ToolResult(call.id, (Text(text),)) for call, text in zip(calls, texts, strict=True)
    )
    choice = prompt.tool_choice
    if not may_call:
        choice = ToolChoice(ChoiceMode.NONE)
    elif choice is not None and choice.mode in (ChoiceMode.REQUIRED, ChoiceMode.NAMED):
        choice = None
    if prompt.reasoning is not None:
        max_tokens = prompt.max_tokens  # its budget is a part of it
    turns = (*prompt.turns, Turn(Role.ASSISTANT, tuple(kept)))
    if results:
        turns = (*turns, Turn(Role.USER, results))
    return replace(prompt, turns=turns, tool_choice=choice, max_tokens=max_tokens)


class SearchCall:
    """A call of the search function; `id` is the client's."""

    __slots__ = ("_pieces", "id")

    def __init__(self, id: str, arguments: str) -> None:
        self.id = id
        self._pieces = [arguments] if arguments else []

    def add(self, piece: Any) -> None:
        if isinstance(piece, str):
            self._pieces.append(piece)

    @property
    def arguments(self) -> str:
        return "".join(self._pieces)

    @property
    def query(self) -> str:
        query = load_object(self.arguments).get("query")
        return query.strip() if isinstance(query, str) else ""

    @property
    def error(self) -> str | None:
        """The code of the error, where it cannot be searched for."""
        query = self.query
        if not query:
            return "invalid_tool_input"
        return "query_too_long" if len(query) > MAX_QUERY else None


class SearchRounds:
    """Turns the events of the rounds into those of one reply. `function` is None where only the
    upstream searches.

    `calls` are the searches of the current round. The first is shown as it arrives, unless another
    call is open; what opens after it is held until the results are known. `end` is the round's end,
    `called` whether it has calls for the client, `sent` whether it has sent anything. `usage` is
    the sum of the rounds that have ended.
    """

    __slots__ = (
        *(
            "_function",
            "_has_begun",
            "_held",
            "_indexes",
            "_next",
            "_open",
            "_reply_id",
            "_search_count",
        ),
        *("_searches", "_sources", "_texts", "called", "end", "sent", "usage"),
    )

    def __init__(self, function: str | None, reply_id: str) -> None:
        self._function = function
        self._reply_id = reply_id
        self._has_begun = False
        self._next = self._search_count = 0
        self._sources: dict[str, SearchResult] = {}
        self.usage = Usage()
        self.start_round()

    def start_round(self) -> None:
        self._indexes: dict[int, int] = {}
        self._open: set[int] = set()
        self._searches: dict[int, SearchCall] = {}
        self._texts: dict[int, list[str]] = {}
        self._held: list[Event] = []
        self.called = self.sent = False
        self.end: End | None = None

    @property
    def calls(self) -> Sequence[SearchCall]:
        return [*self._searches.values()]

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """The events for the client."""
        return [after for event in events for after in self._feed(event)]

    def _feed(self, event: Event) -> Iterable[Event]:
        match event:
            case Begin():
                if self._has_begun:
                    return ()
                self._has_begun = True
                return (event,)
            case Open(index, ToolCall(name=name) as part) if name == self._function:
                return self._open_search(index, part)
            case Open(index, part):
                self.called = self.called or isinstance(part, ToolCall)
            case Delta(index, piece) if call := self._searches.get(index):
                call.add(piece)
                return self._forward(event) if index in self._indexes else ()
            case Close(index) if index in self._searches:
                return self._forward(Close(index)) if index in self._indexes else ()
            case End():
                self.end = event
                return ()
            case Fail(failure, usage):
                return (Fail(failure, usage and self.total(usage)),)
            case _:
                pass
        if self._searches and isinstance(event, Open):
            self._held.append(event)
            return ()
        return self._forward(event)

    def _open_search(self, index: int, part: ToolCall) -> Iterable[Event]:
        self._search_count += 1
        call = SearchCall(f"{CALL_PREFIX}{self._reply_id}_{self._search_count}", part.arguments)
        can_start = not self._searches and not self._open
        self._searches[index] = call
        return self._start_call(index, call) if can_start else ()

    def _start_call(self, index: int, call: SearchCall) -> Iterator[Event]:
        opening = ServerToolCall(call.id, WEB_SEARCH, extra=ProviderData(Format.MESSAGES, {}))
        yield from self._forward(Open(index, opening))
        if arguments := call.arguments:
            yield Delta(self._indexes[index], arguments)

    def _forward(self, event: Event) -> Iterator[Event]:
        """The event with the client's index; held with those of a part that is held."""
        match event:
            case Open(index, part):
                self._indexes[index] = self._next
                self._next += 1
                self._open.add(index)
                self.sent = True
                if self._sources and isinstance(part, Text):
                    self._texts[index] = [part.text]
                yield Open(self._indexes[index], part)
            case Delta(index, piece):
                if index not in self._indexes:
                    self._held.append(event)
                    return
                if index in self._texts and isinstance(piece, str):
                    self._texts[index].append(piece)
                yield Delta(self._indexes[index], piece)
            case Close(index, extra):
                if index not in self._indexes:
                    self._held.append(event)
                    return
                new = self._indexes[index]
                self._open.discard(index)
                yield from (Delta(new, each) for each in self._citations(index))
                yield Close(new, extra)
            case _:
                yield event

    def _citations(self, index: int) -> Iterator[Citation]:
        """The pages that a text names by their addresses."""
        text = "".join(self._texts.pop(index, ()))
        cited: dict[str, Citation] = {}
        for found in islice(_ADDRESS.finditer(text), _MAX_ADDRESSES):
            source = self._find_source(found[0])
            if source is None or source.url in cited:
                continue
            quote, start = source.text[:_MAX_QUOTE] or None, found.start()
            cited[source.url] = Citation(
                source.url, source.title, quote, start, start + len(source.url)
            )
            if len(cited) == _MAX_CITATIONS:
                break
        yield from cited.values()

    def _find_source(self, address: str) -> SearchResult | None:
        """The page of an address, which punctuation may follow."""
        for _ in range(_MAX_PUNCTUATION):
            if (source := self._sources.get(address)) is not None:
                return source
            if address[-1] not in _PUNCTUATION:
                return None
            address = address[:-1]
        return None

    def finish_searches(
        self, parts: Sequence[ServerToolResult], found: Iterable[SearchResult]
    ) -> list[Event]:
        """The results of the round's searches, each after its call, and what was held; `found` can
        be cited from now on."""
        self._sources.update((result.url, result) for result in found)
        events: list[Event] = []
        for (index, call), part in zip(self._searches.items(), parts, strict=True):
            if index not in self._indexes:
                events += self._start_call(index, call)
                events.append(Close(self._indexes[index]))
            events += (Open(self._next, part), Close(self._next))
            self._next += 1
        held, self._held = self._held, []
        for event in held:
            events += self._forward(event)
        return events

    def add_usage(self, usage: Usage) -> None:
        """A round has ended."""
        self.usage = self.total(usage)

    def add_search(self) -> None:
        self.usage = replace(self.usage, web_searches=self.usage.web_searches + 1)

    def total(self, usage: Usage) -> Usage:
        """Adds the usage of the rounds before it."""
        return self.usage + usage

    def final_end(self, stop: StopReason | None = None) -> End:
        """The end of the reply; `stop` where it is not that of the last round."""
        end = self.end or End(StopReason.INTERRUPTED, None)
        extra = end.extra if stop in (None, end.stop) else None
        return replace(end, stop=stop or end.stop, usage=self.usage, extra=extra)
