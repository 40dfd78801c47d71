"""The spans of a request are consecutive and add up to its duration."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.console.timeline import SpanKind, spans, ticks, waterfall
from gateway.store.records import AttemptRow


def attempted(
    started_us: int, total_us: int, first_event_us: int | None = None, verdict: str = "ok"
) -> AttemptRow:
    return AttemptRow(
        channel="chat-main",
        account="a1",
        upstream_model="upstream-model",
        format="chat",
        lane="native",
        reason="the only one",
        started_us=started_us,
        first_event_us=first_event_us,
        total_us=total_us,
        status=200,
        verdict=verdict,
    )


def test_a_failure_and_then_a_reply() -> None:
    failed = attempted(100, 200, verdict="overloaded")
    result = spans(1000, [failed, attempted(400, 500, first_event_us=300)])
    assert [(span.kind, span.duration_us, span.account) for span in result] == [
        (SpanKind.GATEWAY, 100, None),
        (SpanKind.FAILED, 200, "chat-main/a1"),
        (SpanKind.BACKOFF, 100, None),
        (SpanKind.WAITING, 300, "chat-main/a1"),
        (SpanKind.REPLY, 200, "chat-main/a1"),
        (SpanKind.GATEWAY, 100, None),
    ]
    assert [(span.start, span.width) for span in result[:2]] == [(0, 10), (10, 20)]


def test_a_line_for_each_attempt() -> None:
    failed = attempted(100, 200, verdict="overloaded")
    gateway, first, second = waterfall(1000, [failed, attempted(400, 500, first_event_us=300)])
    assert [span.kind for span in gateway.spans] == [
        SpanKind.GATEWAY,
        SpanKind.BACKOFF,
        SpanKind.GATEWAY,
    ]
    assert (first.name, first.result, first.total_us) == (
        "1. chat-main/a1",
        "200 overloaded",
        200,
    )
    assert [(span.start, span.width) for span in second.spans] == [(40, 30), (70, 20)]


def test_a_rejected_or_running_request_has_no_line() -> None:
    assert waterfall(70, []) == []
    assert waterfall(None, [attempted(0, 1)]) == []


def test_the_axis_has_the_duration() -> None:
    assert ticks(8_000_000)[0] == (0, "0 ms")
    assert ticks(8_000_000)[-1] == (100, "8.0 s")


def test_every_kind_has_its_colour() -> None:
    """Backoff was green."""
    green = "c3"
    styles = [kind.style for kind in SpanKind]
    assert len(set(styles)) == len(styles)
    assert green not in styles


def test_a_rejected_request_was_only_in_the_gateway() -> None:
    (result,) = spans(70, [])
    assert (result.kind, result.duration_us, result.width) == (SpanKind.GATEWAY, 70, 100)


def test_a_running_request_has_no_spans() -> None:
    assert spans(None, []) == []
    assert spans(0, [attempted(0, 0)]) == []


def test_a_complete_reply_was_waited_for() -> None:
    result = spans(100, [attempted(0, 100)])
    assert [span.kind for span in result] == [SpanKind.WAITING]


times = st.integers(0, 10_000)


@given(
    st.integers(1, 10_000),
    st.lists(
        st.builds(
            attempted,
            times,
            times,
            st.none() | times,
            st.sampled_from(["ok", "timeout"]),
        ),
        max_size=5,
    ),
)
def test_spans_add_up_to_the_duration(total_us: int, attempts: list[AttemptRow]) -> None:
    """Also if attempts overlap or end after the request."""
    result = spans(total_us, attempts)
    assert sum(span.duration_us for span in result) == total_us
    assert all(span.duration_us > 0 for span in result)
    assert abs(sum(span.width for span in result) - 100) < 1e-6
