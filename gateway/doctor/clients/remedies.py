"""What to do about what breaks for a client."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol

SEE_LOG: Final = "gateway logs show ID, with the id of the request"
TRANSLATE: Final = (
    "the upstream deviates from its format: set `lane: translated` for the channel, which writes "
    "the stream anew; if it is set, or the formats differ, report the request id as a bug"
)
NO_TOOL_CALL: Final = (
    "run it again; if it repeats, the upstream ignores tools or the model is too weak for agents: "
    "use another model, or another channel for this one"
)
NO_COMPACTION: Final = (
    "run it again; if it repeats, traits: {compaction: false} for the channel: the gateway then "
    "asks the model for a summary"
)

_BY_TEXT: Final = (
    (r"user agent not allowed", "allow it: user_agents in the configuration, of group and key"),
    (r"model_not_found|no channel for model", "gateway route --group GROUP --model MODEL explains"),
    (r"insufficient_quota|Too Many Requests", "gateway key show KEY shows limits and budgets"),
    (r"\b(401|403)\b.*\]|upstream_forbidden", "replace the account's credential; then probe it"),
    (r"convert_request_failed", "families: in the configuration closes this endpoint to the model"),
    (r"no_available_accounts", "gateway account list shows why; gateway account reset NAME"),
)
_UNKNOWN_REFUSAL: Final = (
    r"that another account|that upstreams refuse",
    "the gateway does not know these words of the upstream: report them as a bug; "
    "`lane: translated` sends neither foreign reasoning nor what the format does not have",
)
_BY_FEATURE: Final = (
    (
        r"thinking|budget_tokens|reasoning|effort",
        "state what the model supports: traits: {thinking: budget | adaptive | none, efforts: […]}",
    ),
    (
        r"response_format|json_schema|structured|output_config|output_format",
        "traits: {structured: false}: the gateway then asks for JSON in the prompt",
    ),
    (
        r"grammar|custom",
        "traits: {custom_tools: false}: they become tools with one text argument",
    ),
    (
        r"tool|function",
        "the upstream has no tools: agents cannot use it; take the model from this channel",
    ),
    (r"cache_control", "traits: {cache_marks: false} on the channel"),
    (r"temperature|top_p", "traits: {sampling: one | neither}"),
    (r"system", "traits: {system_turns: false}: system messages go to the front"),
    (r"context_management|beta|unknown|extra inputs|unsupported|unrecognized", "lane: translated"),
    (r"max_tokens|max_completion_tokens", "state max_output of the model, or traits"),
)


class _Attempt(Protocol):
    @property
    def status(self) -> int | None: ...
    @property
    def error(self) -> str | None: ...


def remedy_for_answer(what: str, text: str, attempts: Iterable[_Attempt]) -> str:
    """`text` is the refusal; `what` names the features of the request, the likeliest first."""
    for pattern, remedy in _BY_TEXT:
        if re.search(pattern, text, re.IGNORECASE):
            return remedy
    pattern, remedy = _UNKNOWN_REFUSAL
    if re.search(pattern, what):
        return remedy
    upstream = " ".join(each.error or "" for each in attempts) or text
    for source in (upstream, what):
        for pattern, remedy in _BY_FEATURE:
            if re.search(pattern, source, re.IGNORECASE):
                return remedy
    if any(each.status is None for each in attempts):
        return "the upstream cannot be reached: gateway doctor --probe"
    return SEE_LOG
