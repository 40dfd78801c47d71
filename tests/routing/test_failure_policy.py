"""The failure table: every kind of failure, with messages of real upstreams."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.channel import FailureRule
from gateway.core.events import Failure, FailureKind
from gateway.routing.failure_policy import (
    TABLE,
    AccountPenalty,
    Blame,
    Failover,
    FailurePolicy,
    SameAccountRetry,
    Verdict,
    refuses_encrypted_reasoning,
)

CLIENT, ACCOUNT, CAPACITY, TRANSPORT, UPSTREAM = Blame
NEVER, ONCE, YES = Failover
NONE, FAILURE, RATE_LIMITED, CIRCUIT_OPEN, AUTH_FAILED = AccountPenalty
SOON = SameAccountRetry(1.0, jitter=0.5)

classify = FailurePolicy().classify


def response(status: int | None = 500, message: str = "No.", **fields: Any) -> Failure:
    return Failure(kind=FailureKind.RESPONSE, status=status, message=message, **fields)


def network_error(kind: FailureKind, **fields: Any) -> Failure:
    return Failure(kind=kind, message="at the network_error", **fields)


NETWORK_ERRORS: dict[str, tuple[Failure, Blame, Failover, AccountPenalty, float | None]] = {
    "no_connection": (network_error(FailureKind.CONNECT), TRANSPORT, YES, FAILURE, None),
    "tls_opens_5_minutes": (network_error(FailureKind.TLS), TRANSPORT, YES, CIRCUIT_OPEN, 300),
    "no_answer_after_sending": (
        network_error(FailureKind.DISCONNECT),
        TRANSPORT,
        ONCE,
        FAILURE,
        None,
    ),
    "cut_before_commit": (network_error(FailureKind.TRUNCATED), TRANSPORT, YES, FAILURE, None),
    "timeout": (network_error(FailureKind.TIMEOUT), UPSTREAM, ONCE, FAILURE, None),
    "empty_success": (network_error(FailureKind.EMPTY), UPSTREAM, YES, FAILURE, None),
    "reply_too_large": (network_error(FailureKind.TOO_LARGE), UPSTREAM, NEVER, FAILURE, None),
    "event_too_large": (network_error(FailureKind.EVENT_TOO_LARGE), UPSTREAM, NEVER, FAILURE, None),
    "unwritable": (network_error(FailureKind.UNWRITABLE), UPSTREAM, NEVER, NONE, None),
    "garbage": (network_error(FailureKind.MALFORMED), UPSTREAM, YES, FAILURE, None),
    "html_page_opens_5_minutes": (
        network_error(FailureKind.PAGE, status=200),
        UPSTREAM,
        ONCE,
        CIRCUIT_OPEN,
        300,
    ),
}
STATUSES: dict[str, tuple[tuple[int, ...], Blame, Failover, AccountPenalty, float | None]] = {
    "redirect": ((301, 302, 307, 308), UPSTREAM, NEVER, NONE, None),
    "client": ((400, 404, 413, 415, 422), CLIENT, NEVER, NONE, None),
    "key_refused": ((401,), ACCOUNT, YES, AUTH_FAILED, None),
    "payment_required_until_reset": ((402,), ACCOUNT, YES, AUTH_FAILED, 300),
    "forbidden": ((403,), ACCOUNT, ONCE, AUTH_FAILED, None),
    "its_own_timeout": ((408, 504, 524), UPSTREAM, NEVER, FAILURE, None),
    "rate_limited": ((429,), CAPACITY, YES, RATE_LIMITED, None),
    "overloaded": ((529,), CAPACITY, YES, FAILURE, None),
    "another_refusal": ((405, 409, 410, 418, 425, 451), UPSTREAM, ONCE, NONE, None),
    "server_error": ((500, 501, 502, 503, 520, 599), UPSTREAM, YES, FAILURE, None),
}


def check(
    verdict: Verdict, blame: Blame, other: Failover, effect: AccountPenalty, seconds: float | None
) -> None:
    found = (verdict.blame, verdict.failover, verdict.penalty, verdict.penalty_seconds)
    assert found == (blame, other, effect, seconds)


@pytest.mark.parametrize("row", NETWORK_ERRORS)
def test_network_errors(row: str) -> None:
    failure, *expected = NETWORK_ERRORS[row]
    check(classify(failure), *expected)
    assert classify(failure).same_account_retry is None


def test_a_reused_connection_is_replaced_at_once() -> None:
    """By the same account, which need not be at fault."""
    verdict = classify(network_error(FailureKind.REUSED))
    check(verdict, TRANSPORT, ONCE, NONE, None)
    assert verdict.same_account_retry == SameAccountRetry(0.0)


@pytest.mark.parametrize(
    ("row", "status"), [(row, each) for row in STATUSES for each in STATUSES[row][0]]
)
def test_statuses(row: str, status: int) -> None:
    check(classify(response(status)), *STATUSES[row][1:])


def test_no_status_is_a_server_error() -> None:
    check(classify(response(None)), UPSTREAM, YES, FAILURE, None)


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_of_failure_has_a_row(kind: FailureKind) -> None:
    assert any(row.matches(network_error(kind)) for row in TABLE)


@pytest.mark.parametrize("status", [400, 403, 429, 500, 502, 503])
@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 213462 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens.",
        "Your input exceeds the context window of this model.",
    ],
)
def test_context_overflow_is_blamed_on_the_client_with_any_status(
    status: int, message: str
) -> None:
    check(classify(response(status, message)), CLIENT, NEVER, NONE, None)


@pytest.mark.parametrize("status", [400, 403, 429, 500])
@pytest.mark.parametrize(
    "fields",
    [
        {"code": "content_policy_violation"},
        {"code": "content_filter"},
        {"type": "invalid_prompt"},
        {"message": "Output blocked by content filtering policy"},
        {"message": "The response was filtered due to the content management policy."},
        {"message": "Your request was rejected as a result of our safety system."},
        {"message": "The prompt was flagged as potentially violating our usage policy."},
        {"message": "This request violates our usage policies."},
        {"message": "This model requires moderation and your input was flagged."},
    ],
    ids=str,
)
def test_content_policy_is_blamed_on_the_client_with_any_status(
    status: int, fields: dict[str, str]
) -> None:
    check(classify(response(status, **fields)), CLIENT, NEVER, NONE, None)


@pytest.mark.parametrize("status", [400, 413, 429, 500, 503])
@pytest.mark.parametrize(
    "code",
    [
        *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"),
        *("image_too_large", "image_parse_error", "failed_to_download_image"),
        *("image_content_policy_violation", "empty_image_file"),
    ],
)
def test_images_are_blamed_on_the_client_with_any_status(status: int, code: str) -> None:
    check(classify(response(status, "No.", code=code)), CLIENT, NEVER, NONE, None)


@pytest.mark.parametrize("status", [400, 401, 403, 500])
@pytest.mark.parametrize(
    "message",
    [
        "This organization has been disabled.",
        "Your account has been deactivated, please check your email for more information.",
        "The account associated with this API key has been deactivated.",
        "You are using a deactivated account",
        "Your access was terminated due to violation of our policies.",
        "Incorrect API key provided: sk-...abcd.",
        "API key not valid. Please pass a valid API key.",
    ],
)
def test_a_closed_account_fails_auth_with_any_status(status: int, message: str) -> None:
    check(classify(response(status, message)), ACCOUNT, YES, AUTH_FAILED, None)
    assert classify(response(status, message)).alert


@pytest.mark.parametrize("status", [400, 402, 403, 429, 500])
@pytest.mark.parametrize(
    "fields",
    [
        {"code": "insufficient_quota"},
        {"type": "insufficient_quota"},
        {"type": "billing_error"},
        {"message": "Your credit balance is too low to access the API."},
        {"message": "Insufficient Balance"},
        {"message": "insufficient user quota"},
        {"message": "Billing hard limit has been reached"},
    ],
    ids=str,
)
def test_an_exhausted_quota_lasts_until_reset(status: int, fields: dict[str, str]) -> None:
    failure = response(status, **fields, retry_after=86_400.0)
    check(classify(failure), ACCOUNT, YES, AUTH_FAILED, 300)
    assert classify(failure).retry_after == 86_400


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value: 'This organization has been disabled'.",
        'messages.0.role: "your account has been deactivated" is no role',
        "Input should be a string, not `credit balance is too low`",
        "messages.0: Your account has been deactivated",
        "For this organization web search has been disabled.",
        "Unknown field\nYour credit balance is too low",
        "x" * 61 + " this account has been disabled",
    ],
)
def test_quoted_client_text_disables_no_account(message: str) -> None:
    check(classify(response(400, message)), CLIENT, NEVER, NONE, None)


def test_a_policy_violation_of_the_account_is_blamed_on_it() -> None:
    message = "Your account has been disabled for violating our usage policies."
    check(classify(response(403, message)), ACCOUNT, YES, AUTH_FAILED, None)


@pytest.mark.parametrize("word", ["overloaded_error", "server_is_overloaded", "slow_down"])
@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_overload_by_code(status: int, word: str) -> None:
    for failure in (response(status, type=word), response(status, code=word)):
        check(classify(failure), CAPACITY, YES, FAILURE, None)
        assert classify(failure).same_account_retry == SOON


@pytest.mark.parametrize(
    ("hint", "again"),
    [
        (None, SOON),
        (0.5, SameAccountRetry(0.5)),
        (3.0, SameAccountRetry(3.0)),
        (3.1, None),
        (60.0, None),
    ],
)
def test_overload_is_retried_after_a_second_or_the_hint_up_to_three(
    hint: float | None, again: SameAccountRetry | None
) -> None:
    assert classify(response(529, retry_after=hint)).same_account_retry == again


@pytest.mark.parametrize(
    ("hint", "again"),
    [
        (None, None),
        (2.0, SameAccountRetry(2.0, last_resort=True)),
        (3.0, SameAccountRetry(3.0, last_resort=True)),
        (3.1, None),
    ],
)
def test_rate_limits_are_retried_only_with_a_hint_and_as_last_resort(
    hint: float | None, again: SameAccountRetry | None
) -> None:
    verdict = classify(response(429, retry_after=hint))
    assert verdict.same_account_retry == again
    assert verdict.retry_after == hint


def test_nothing_else_is_retried_on_the_same_account() -> None:
    for status in {*range(300, 600)} - {429, 529}:
        assert classify(response(status, retry_after=1.0)).same_account_retry is None


def test_the_wait_after_overload_has_jitter() -> None:
    assert [SOON.wait(chance) for chance in (0.0, 0.5, 1.0)] == [0.5, 1.0, 1.5]
    assert SameAccountRetry(2.0).wait(0.9) == 2.0


@given(
    st.sampled_from([*FailureKind]),
    st.one_of(st.none(), st.integers(300, 599)),
    st.sampled_from([None, "insufficient_quota", "content_filter", "slow_down"]),
    st.one_of(st.none(), st.floats(0, 1e6)),
)
def test_after_commit_there_is_no_retry_and_the_failure_counts(
    kind: FailureKind, status: int | None, code: str | None, hint: float | None
) -> None:
    failure = Failure(kind=kind, status=status, message="No.", code=code, retry_after=hint)
    before, after = classify(failure), classify(failure, is_last=True)
    assert (after.failover, after.same_account_retry, after.penalty_seconds) == (NEVER, None, None)
    assert after.penalty is (NONE if before.penalty is NONE else FAILURE)
    assert (after.reason, after.blame, after.alert) == (before.reason, before.blame, before.alert)


def test_failures_that_an_operator_has_to_fix_alert() -> None:
    alerted = {row.reason for row in TABLE if row.alert}
    assert alerted == {
        "TLS failed",
        "account closed",
        "key refused",
        "access forbidden",
        "redirected",
    }


@pytest.mark.parametrize(
    ("blame", "seconds", "expected"),
    [
        (CLIENT, None, (NEVER, NONE, None)),
        (ACCOUNT, None, (YES, AUTH_FAILED, None)),
        (ACCOUNT, 7200.0, (YES, AUTH_FAILED, 7200.0)),
        (CAPACITY, None, (YES, RATE_LIMITED, None)),
        (CAPACITY, 30.0, (YES, RATE_LIMITED, 30.0)),
        (TRANSPORT, None, (YES, FAILURE, None)),
        (TRANSPORT, 60.0, (YES, CIRCUIT_OPEN, 60.0)),
        (UPSTREAM, None, (YES, FAILURE, None)),
        (UPSTREAM, 60.0, (YES, CIRCUIT_OPEN, 60.0)),
    ],
)
def test_a_rule_sets_blame_and_penalty(
    blame: Blame, seconds: float | None, expected: tuple[Failover, AccountPenalty, float | None]
) -> None:
    policy = FailurePolicy((rule(blame, status=(418,), seconds=seconds),))
    check(policy.classify(response(418)), blame, *expected)


def test_rules_precede_the_table_and_the_first_match_decides() -> None:
    rules = (
        rule(UPSTREAM, status=(400, 404), text=re.compile("no such deployment")),
        rule(CAPACITY, status=(400,)),
        rule(ACCOUNT, status=(400,)),
    )
    classify = FailurePolicy(rules).classify
    assert classify(response(404, "there is no such deployment")).reason == "rule 1"
    assert classify(response(400)).reason == "rule 2"
    assert classify(response(404)).reason == "refused"


@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        ({"type": re.compile("busy.*")}, {"type": "busy_now"}),
        ({"code": re.compile("E42")}, {"code": "E42"}),
        ({"text": re.compile("come back")}, {"message": "please come back"}),
        ({"text": re.compile("come back")}, {"body": '{"hint":"come back"}'}),
        ({"status": (500,), "code": re.compile("E4.")}, {"code": "E42"}),
    ],
    ids=str,
)
def test_a_rule_matches_by_status_type_code_or_text(
    conditions: dict[str, Any], fits: dict[str, Any]
) -> None:
    assert matches(response(500, **fits), **conditions)
    assert not matches(response(500, "another", type="not busy", code="E421"), **conditions)
    other = network_error(FailureKind.CONNECT, code="E42", body="come back", type="busy")
    assert not matches(other, **conditions)


def test_every_condition_of_a_rule_must_hold() -> None:
    conditions = {"status": (500,), "code": re.compile("E42")}
    assert not matches(response(503, code="E42"), **conditions)
    assert not matches(response(500, code="E43"), **conditions)


def rule(blame: Blame, *, seconds: float | None = None, **conditions: Any) -> FailureRule:
    return FailureRule.model_construct(blame=blame.value, seconds=seconds, **conditions)


def matches(failure: Failure, **conditions: Any) -> bool:
    return FailurePolicy((rule(CLIENT, **conditions),)).classify(failure).reason == "rule 1"


@pytest.mark.parametrize(
    ("status", "message", "fields"),
    [
        (404, "The model `x-1` does not exist or you do not have access to it.", {}),
        (404, "model: x-1", {"type": "not_found_error"}),
        (404, "model 'x-1:8b' not found", {}),
        (404, "models/x-1 is not found for API version v1beta", {}),
        (404, "No endpoints found for org/x-1.", {}),
        (400, "org/x-1 is not a valid model ID", {}),
        (400, "Model Not Exist", {}),
        (400, "The provided model identifier is invalid.", {}),
        (400, "The 'x-1' model is not supported when using this account.", {}),
        (403, "Project does not have access to it", {"code": "model_not_found", "param": "model"}),
        (503, "No available channel for model x-1", {"code": "model_not_found"}),
    ],
)
def test_an_upstream_without_the_model(status: int, message: str, fields: dict[str, str]) -> None:
    check(classify(response(status, message, **fields)), UPSTREAM, YES, FAILURE, None)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("File not found: file_1", {}),
        ("This model does not support images", {}),
        ("Unknown model parameter: top_k", {}),
        ("messages.0: the model `x-1` does not exist", {"param": "messages.0"}),
        ("The model `image-9` does not exist", {"code": "model_not_found", "param": "tools"}),
        ("temperature is not supported with this model", {}),
        ("Say 'the model x does not exist'", {}),
    ],
)
def test_what_is_not_about_the_requested_model(message: str, fields: dict[str, str]) -> None:
    check(classify(response(400, message, **fields)), CLIENT, NEVER, NONE, None)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Encrypted content is not supported with this model.", True),
        ("encrypted_content is unsupported for this model", True),
        ("Invalid value: 'reasoning.encrypted_content'. Supported values are: 'a'.", True),
        ("Unknown include: reasoning.encrypted_content", True),
        ("The encrypted content for item rs_1 could not be verified.", False),
        ("This model is not supported.", False),
    ],
)
@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_refusal_to_encrypt_reasoning(message: str, expected: bool, status: int) -> None:
    failure = Failure(kind=FailureKind.RESPONSE, status=status, message=message)
    assert refuses_encrypted_reasoning(failure) is (expected and status != 500)
