"""The spans of a request follow each other without a gap and fill all of its time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.console.timeline import SpanKind, spans
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
    told = spans(1000, [failed, attempted(400, 500, first_event_us=300)])
    assert [(each.kind, each.duration_us, each.account) for each in told] == [
        (SpanKind.GATEWAY, 100, None),
        (SpanKind.FAILED, 200, "chat-main/a1"),
        (SpanKind.BACKOFF, 100, None),
        (SpanKind.WAITING, 300, "chat-main/a1"),
        (SpanKind.REPLY, 200, "chat-main/a1"),
        (SpanKind.GATEWAY, 100, None),
    ]
    assert [(each.start, each.width) for each in told[:2]] == [(0, 10), (10, 20)]


def test_a_refused_request_was_only_in_the_gateway() -> None:
    (told,) = spans(70, [])
    assert (told.kind, told.duration_us, told.width) == (SpanKind.GATEWAY, 70, 100)


def test_what_has_not_ended_has_no_spans() -> None:
    assert spans(None, []) == []
    assert spans(0, [attempted(0, 0)]) == []


def test_a_reply_in_one_piece_was_waited_for() -> None:
    told = spans(100, [attempted(0, 100)])
    assert [each.kind for each in told] == [SpanKind.WAITING]


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
def test_spans_fill_the_whole(total_us: int, attempts: list[AttemptRow]) -> None:
    """Also where clocks of attempts overlap or reach beyond the end."""
    told = spans(total_us, attempts)
    assert sum(each.duration_us for each in told) == total_us
    assert all(each.duration_us > 0 for each in told)
    assert abs(sum(each.width for each in told) - 100) < 1e-6
