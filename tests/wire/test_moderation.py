"""Results of moderation arrive in the form of the client's format."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat.chat_completion import Moderation as ChatModeration
from openai.types.responses.response import Moderation

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.wire.moderation import moderation_results

CHAT, RESPONSES = Format.CHAT, Format.RESPONSES
RESULT = {
    "type": "moderation_result",
    "model": "m",
    "flagged": True,
    "categories": {"violence": True},
    "category_scores": {"violence": 0.9},
    "category_applied_input_types": {"violence": ["text"]},
}
ERROR = {"type": "error", "code": "c", "message": "no"}


def several(*results: Any) -> dict[str, Any]:
    return {"type": "moderation_results", "model": "m", "results": list(results)}


CASES = [
    ({"input": RESULT, "output": ERROR}, {"input": several(RESULT), "output": ERROR}),
    ({"input": RESULT, "output": RESULT}, {"input": several(RESULT), "output": several(RESULT)}),
]


@pytest.mark.parametrize(("one", "list_"), CASES)
def test_both_ways(one: dict[str, Any], list_: dict[str, Any]) -> None:
    assert moderation_results(ProviderData(RESPONSES, one), CHAT) == list_
    assert moderation_results(ProviderData(CHAT, list_), RESPONSES) == one
    ChatModeration.model_validate(list_)
    Moderation.model_validate(one)
    for format, own in ((RESPONSES, one), (CHAT, list_)):
        assert moderation_results(ProviderData(format, own), format) == own
        assert moderation_results(ProviderData(format, own), Format.MESSAGES) is None


@pytest.mark.parametrize("results", [several(), several(RESULT, RESULT), {}, "x", None, [RESULT]])
def test_what_one_result_cannot_say_is_not_mapped(results: Any) -> None:
    data = ProviderData(CHAT, {"input": several(RESULT), "output": results})
    assert moderation_results(data, RESPONSES) is None
