"""What an upstream's refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import Failure, FailureKind
from gateway.routing.refusals import (
    LIFETIME,
    UNSIGNED_CALLS,
    ProofLoss,
    Refusals,
    refused_proof,
    refused_values,
    refuses_compaction,
)

VALUES = {
    "Unexpected value(s) `a-2025-01-01`, `b-2025-01-01` for the `anthropic-beta` header. Please": (
        "beta:a-2025-01-01",
        "beta:b-2025-01-01",
    ),
    "Unexpected value(s) 'x-2025-01-01' for the 'anthropic-beta' header": ("beta:x-2025-01-01",),
    "context_management: Extra inputs are not permitted": ("context_management",),
    '{\\"message\\":\\"context_management: Extra inputs are not permitted\\"}': (
        "context_management",
    ),
    "tools.3.custom.input_examples: Extra inputs are not permitted": (
        "tools.custom.input_examples",
    ),
    "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted": (
        "messages.content.thinking.cache_control",
    ),
    "[{'type': 'extra_forbidden', 'loc': ('body', 'tools', 0, 'strict'), 'msg': 'Extra inputs'}]": (
        "tools.0.strict".replace(".0", ""),
    ),
    "Unknown parameter: 'reasoning.summary'.": ("reasoning.summary",),
    "Unknown parameter: 'tools[0].strict'.": ("tools.strict",),
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'y' instead.": (
        "max_tokens",
    ),
    "Unsupported value: 'temperature' does not support 0.7. Only the default (1) is.": (
        "temperature",
    ),
    "Unrecognized request argument supplied: verbosity": ("verbosity",),
    "Unrecognized request arguments supplied: verbosity, store": ("verbosity", "store"),
    "Unrecognized key(s) in object: 'verbosity'": ("verbosity",),
    "json: unknown field `verbosity`, expected one of `model`": ("verbosity",),
    'Invalid JSON payload received. Unknown name \\"store\\": Cannot find field.': ("store",),
    "'messages.2' : property 'reasoning_content' is unsupported": ("messages.reasoning_content",),
    "Additional properties are not allowed ('verbosity' was unexpected)": ("verbosity",),
    "This model does not support the effort parameter.": ("effort",),
    "tools.1: Input tag 'web_search_20260209' found using 'type' does not match any of the": (
        "tool:web_search_20260209",
    ),
    "Hosted tool 'image_generation' is not supported with this model": ("tool:image_generation",),
    "Unsupported value: 'verbosity' does not support 'x' with this model.": ("x",),
    "max_tokens: must be less than 8192": (),
    "messages: at least one message is required": (),
}
PROOFS: dict[str, ProofLoss | str | None] = {
    "Function call is missing a thought_signature in functionCall parts.": UNSIGNED_CALLS,
    "Function call `f` in the `1.` content block is missing a `thought_signature`.": UNSIGNED_CALLS,
    "Corrupted thought signature.": ProofLoss.REFUSED,
    "The encrypted content gAAA...w could not be verified.": ProofLoss.REFUSED,
    "Invalid `signature` in `thinking` block": ProofLoss.REFUSED,
    "this block is bound to a different conversation": ProofLoss.PREFIX_CHANGED,
    "Encrypted content organization_id did not match the target organization.": (
        ProofLoss.ACCOUNT_SWITCHED
    ),
    "Encrypted content is not supported with this model.": None,
    "The signature of your webhook is missing": None,
}


def failure(message: str, **fields: Any) -> Failure:
    return Failure(kind=FailureKind.RESPONSE, **{"status": 400} | fields, message=message)


@pytest.mark.parametrize(("message", "names"), VALUES.items(), ids=range(len(VALUES)))
def test_refused_values(message: str, names: tuple[str, ...]) -> None:
    found = refused_values(failure(message))
    assert set(names) <= set(found) if names else found == ()
    assert refused_values(failure("Provider returned error", body=message)) == found
    assert refused_values(failure(message, status=500)) == ()


def test_a_parameter_that_only_its_field_names() -> None:
    found = failure("This is not possible", param="text.verbosity", code="unsupported_parameter")
    assert refused_values(found) == ("text.verbosity",)
    found = failure("Invalid value: 'x'. Supported values are: 'y'", param="tools[2].type")
    assert refused_values(found) == ("tool:x",)


@pytest.mark.parametrize(("message", "reason"), PROOFS.items(), ids=range(len(PROOFS)))
def test_refused_proofs(message: str, reason: ProofLoss | str | None) -> None:
    assert refused_proof(failure(message)) == reason
    assert refused_proof(failure(message, status=502)) is None
    assert refused_proof(failure("no", code="invalid_encrypted_content")) is ProofLoss.REFUSED


def test_long_texts_are_read_in_linear_time() -> None:
    for piece in (
        "unknown field '",
        "`a`, ",
        "encrypted content ",
        "does not support the ",
        "loc'",
    ):
        text = piece * 100_000
        assert refused_proof(failure(text, body=text)) is None
        assert len(refused_values(failure(text, body=text))) <= 32


def test_memory_ends_and_is_bounded() -> None:
    refusals, model, ref = Refusals(), ("main", "m"), ("main", "a")
    refusals.add_values(model, [f"field_{number}" for number in range(50)], now=0)
    assert len(refusals.values_of(model, 1)) == 32
    assert refusals.values_of(model, LIFETIME) == ()
    refusals.add_proofs(ref, range(30_000), ProofLoss.REFUSED, now=0)
    assert len(refusals.proofs[ref]) == 20_000
    assert refusals.proof(ref, 29_999, 1) is ProofLoss.REFUSED
    assert refusals.proof(ref, 29_999, LIFETIME) is None
    refusals.retain(set())
    assert not refusals.values and not refusals.proofs


COMPACTIONS = {
    "Invalid value: 'compaction_trigger'. Supported values are: 'message'.": True,
    "input[7]: unknown item": True,
    "body.input.7.type: no": True,
    "input[6]: unknown item": False,
    "context_management: Extra inputs are not permitted": True,
    "Unknown parameter: 'context_management'.": True,
    "Unexpected value(s) `compact-2026-01-12` for the `anthropic-beta` header.": True,
    "context_management.edits.0: Input tag 'compact_20260112' found using 'type'": True,
    "compaction is not supported by this model": True,
    "Invalid 'context_management[0].compact_threshold': below the minimum value.": False,
    "context_management.edits.0.compact_20260112.trigger.value: at least 50000": False,
    "prompt is too long: compact the conversation": False,
    "Unknown parameter: 'verbosity'.": False,
}


@pytest.mark.parametrize("text", COMPACTIONS)
def test_compactions(text: str) -> None:
    failure = Failure(kind=FailureKind.RESPONSE, message=text, status=400)
    assert refuses_compaction(failure, 7) is COMPACTIONS[text]
    assert not refuses_compaction(Failure(kind=FailureKind.RESPONSE, message=text, status=500), 7)
