"""Summaries of conversations, which the model writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Failure,
    FailureKind,
    Open,
    StopReason,
    Usage,
)
from gateway.core.formats import Lane
from gateway.core.parts import Text, UnknownPart
from gateway.core.prompt import ChoiceMode, Prompt, Role, ToolChoice, Turn
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.core.value import replace
from gateway.routing.router import Candidate
from gateway.runtime import Runtime
from gateway.server.proxy.attempt import TranslatedAttempt
from gateway.server.proxy.attempt_outcome import AttemptOutcome
from gateway.server.proxy.body_relay import read_reply
from gateway.server.proxy.candidate_loop import CandidateLoop
from gateway.server.record.client_request import ClientRequest, CompleteReply
from gateway.server.record.deadlines import run_with_timeout
from gateway.store.records import UsageSource
from gateway.wire.codec import Encoder
from gateway.wire.stream.translator import CrossFormatTranslator

_REQUEST: Final = """\
This conversation has become too long to go on with. Everything above will be deleted, and your \
next message is all that will be left of it. Write it so that somebody who knows nothing else can \
continue the work. Answer with that text alone, and call no tool. Have a section for each of these:

1. Task: what the user wants, with every requirement, limit and preference, and the latest request \
in its own words.
2. Facts: each name, number, identifier, path, address, version, setting and result that may be \
needed again, exactly as it was given.
3. Decisions: what was decided and why, and what was tried or proposed and rejected.
4. Files: each that was read, created or changed, what matters in it, and its present state; short \
passages of code that are still needed, literally.
5. Tools: what calls have changed and found, what is still running or open, errors and how they \
were dealt with, and calls without a result.
6. Open work: what is finished, what is under way, and the very next step.

Leave out what does not apply or has been superseded. Invent nothing."""
_INSTRUCTIONS: Final = "\n\nThe user adds for this summary:\n"
_MAX_LENGTH: Final = 1_000_000
"""Characters of a summary."""
_TOO_LONG: Final = Failure(kind=FailureKind.TOO_LARGE, message="the summary is endless")
_EMPTY: Final = Failure(kind=FailureKind.EMPTY, message="the model wrote no summary")

WritePart = Callable[[str], UnknownPart]
"""Makes the part that a client gets of a summary."""


def summary_prompt(prompt: Prompt, instructions: str) -> Prompt:
    """The prompt for the summary. Tools and reasoning stay, for the sake of prompt caches."""
    text = _REQUEST + (_INSTRUCTIONS + instructions if instructions else "")
    return replace(
        prompt,
        turns=(*prompt.turns, Turn(Role.USER, (Text(text),))),
        tool_choice=ToolChoice(ChoiceMode.NONE) if prompt.tools else None,
        max_tokens=None,
        stop=(),
        output=None,
        verbosity=None,
    )


class SummaryCollector:
    """Transforms the events of a reply into one part with all of its text."""

    def __init__(self, write: WritePart) -> None:
        self._write = write
        self._pieces: list[str] = []
        self._texts: set[int] = set()
        self._size = 0
        self.finished = False

    @property
    def text(self) -> str:
        return "".join(self._pieces).strip()

    def transforms(self, index: int) -> bool:
        return True

    def apply(self, event: Event) -> Sequence[Event]:
        match event:
            case Delta(index, str() as piece) if index in self._texts:
                self._pieces.append(piece)
                self._size += len(piece)
                if self._size > _MAX_LENGTH:
                    return (Fail(_TOO_LONG),)
            case Open(index, Text(text)):
                self._texts.add(index)
                self._pieces.append(f"\n\n{text}" if self._pieces else text)
            case End():
                if not (text := self.text):
                    return (Fail(_EMPTY, event.usage),)
                end = replace(event, stop=StopReason.COMPACTION, stop_sequence=None)
                return (Open(0, self._write(text)), Close(0), end)
            case Begin() | Fail():
                return (event,)
            case _:
                pass
        return ()


class SummaryTranslator(CrossFormatTranslator):
    """Counts the characters of the summary, too, which arrive as no event."""

    __slots__ = ()

    def _encode_events(self, events: Sequence[Event], out: list[bytes]) -> None:
        deltas = [event.piece for event in events if type(event) is Delta]
        self.chars += sum(len(piece) for piece in deltas if isinstance(piece, str))
        super()._encode_events(events, out)


class SummaryAttempt(TranslatedAttempt):
    """Asks the model for the summary; the client gets it as the only part of its reply."""

    def __init__(
        self,
        write: WritePart,
        instructions: str,
        runtime: Runtime,
        request: ClientRequest,
        candidate: Candidate,
    ) -> None:
        asked = replace(request, prompt=summary_prompt(request.prompt, instructions))
        super().__init__(runtime, asked, candidate)
        self._request = request
        self._transformer = self.summary = SummaryCollector(write)

    def translator(self) -> SummaryTranslator:
        request = self._request
        return self.collecting_translator(request.codec.encoder(request.prompt, self._metadata()))

    def collecting_translator(self, collector: Encoder) -> SummaryTranslator:
        input_tokens = self._request.input_tokens
        decoder = self._codec.decoder()
        return SummaryTranslator(decoder, collector, self.summary, input_tokens=input_tokens)

    def _parse_reply(self, body: bytes) -> Reply:
        reply = super()._parse_reply(body)
        events = (after for event in reply_events(reply) for after in self.summary.apply(event))
        return replace(collect_reply(events), usage=reply.usage)

    def _render_reply(
        self, reply: Reply, usage: Usage | None, *, stream: bool = False
    ) -> CompleteReply:
        complete = super()._render_reply(reply, usage, stream=stream)
        if usage is None or not usage.output_tokens:
            complete = replace(complete, output_chars=len(self.summary.text))
        return complete


MakeSummary = Callable[[Runtime, ClientRequest, Candidate], SummaryAttempt]


class SummaryLoop(CandidateLoop[SummaryAttempt, str]):
    """Tries the candidates until one has written the summary. `usage` is what it used."""

    usage: tuple[Usage, UsageSource]

    make_attempt: MakeSummary

    async def run(self, first: Candidate) -> str:
        """The summary; `first` is tried before others. Raises `GatewayError` or `AttemptFailed`."""
        candidates = [replace(each, lane=Lane.TRANSLATED) for each in self._route.candidates]
        ordered = self._ordered(candidates)
        ordered.sort(key=lambda ranked: ranked.candidate.account_ref != first.account_ref)
        return await self._try_candidates(ordered)

    def _build_attempt(self, request: ClientRequest, candidate: Candidate) -> SummaryAttempt:
        return self.make_attempt(self._runtime, request, candidate)

    async def _start(
        self, candidate: Candidate, attempt: SummaryAttempt, outcome: AttemptOutcome
    ) -> str:
        meter, limit = self._exchange.meter, self._exchange.snapshot.config.server.max_response
        meter.charge_at(candidate.channel, attempt.sent[0])
        self._exchange.start_attempt(candidate)
        sending = self._send(candidate, attempt, meter.mark_sent)
        reading = read_reply(sending, attempt, limit, meter)
        whole = attempt.channel.timeouts.whole
        _, reply = await run_with_timeout(self._runtime, whole, reading)
        meter.confirmed_tier = reply.service_tier
        text, input_tokens = attempt.summary.text, self._client_request.input_tokens
        estimate = Usage.estimated(input_tokens, len(text))
        self.usage = (reply.usage, "upstream") if reply.usage else (estimate, "estimated")
        return text

    def _ended(self, candidate: Candidate, outcome: AttemptOutcome) -> None:
        outcome.succeed()
