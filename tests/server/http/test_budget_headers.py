"""How much of its budgets a key has spent, in headers that clients read."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import ClientResponse

from gateway.core.formats import Format
from gateway.core.limits import BUDGETS, Budget, Limits
from gateway.quota.limits import BudgetStatus, Holder, HolderKind
from gateway.server.http.budget_headers import BUDGET_HEADERS, budget_headers
from tests.server.key_limits import limit_group, limit_key
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream

HOLDER = Holder(HolderKind.KEY, "tok_0", "laptop", Limits())
AT = 1_795_262_400_000_001  # 2026-11-21T12:00:00.000001Z
UNIT = 1_000_000
PREFIXES = ("x-gateway-budget-", "anthropic-ratelimit-unified-", "x-codex-primary", "x-codex-seco")


def status(name: str, spent: int, limit: int = 100 * UNIT, at: int | None = AT) -> BudgetStatus:
    return BudgetStatus(HOLDER, Budget(BUDGETS[name], limit), spent, 0, at)


def headers_of(answer: ClientResponse) -> dict[str, str]:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return {name: value for name, value in headers.items() if name.startswith(PREFIXES)}


def test_the_most_used_budget_is_reported() -> None:
    statuses = [status("budget", 10 * UNIT, at=None), status("budget_usd_day", 79_999_999)]
    assert dict(budget_headers(Format.CHAT, statuses)) == {
        "x-gateway-budget-status": "allowed",
        "x-gateway-budget-window": "day",
        "x-gateway-budget-currency": "usd",
        "x-gateway-budget-limit": "100",
        "x-gateway-budget-remaining": "20.000001",
        "x-gateway-budget-reset": "2026-11-21T12:00:00Z",
    }


@pytest.mark.parametrize(
    ("spent", "word"),
    [
        (0, "allowed"),
        (80 * UNIT - 1, "allowed"),
        (80 * UNIT, "allowed_warning"),
        (100 * UNIT - 1, "allowed_warning"),
        (100 * UNIT, "rejected"),
        (150 * UNIT, "rejected"),
    ],
)
@pytest.mark.parametrize("format", [*Format, None])
def test_a_warning_at_80_percent(format: Format | None, spent: int, word: str) -> None:
    headers = dict(budget_headers(format, [status("budget_5h", spent)]))
    assert headers["x-gateway-budget-status"] == word
    if format is Format.MESSAGES:
        assert headers["anthropic-ratelimit-unified-status"] == word
        assert headers["anthropic-ratelimit-unified-5h-status"] == word
    assert set(headers) <= set(BUDGET_HEADERS)


def test_messages_has_those_of_rolling_windows() -> None:
    statuses = [
        status("budget_week", 40 * UNIT, at=AT + UNIT),
        status("budget_usd_5h", 91_999_999),
        status("budget_5h", 10 * UNIT, at=None),
        status("budget_month", 50 * UNIT),
    ]
    headers = dict(budget_headers(Format.MESSAGES, statuses))
    prefix = "anthropic-ratelimit-unified-"
    assert {name: value for name, value in headers.items() if name.startswith(prefix)} == {
        f"{prefix}status": "allowed_warning",
        f"{prefix}reset": "1795262401",
        f"{prefix}representative-claim": "five_hour",
        f"{prefix}5h-status": "allowed_warning",
        f"{prefix}5h-utilization": "0.91",
        f"{prefix}5h-reset": "1795262401",
        f"{prefix}7d-status": "allowed",
        f"{prefix}7d-utilization": "0.40",
        f"{prefix}7d-reset": "1795262402",
    }


def test_a_month_has_no_claim() -> None:
    headers = dict(budget_headers(Format.MESSAGES, [status("budget_month", 3)]))
    assert headers["anthropic-ratelimit-unified-reset"] == "1795262401"
    assert not any("claim" in name or "5h" in name or "7d" in name for name in headers)


def test_responses_has_percentages() -> None:
    statuses = [status("budget_week", 40 * UNIT), status("budget_usd_5h", 99_999_999, at=None)]
    headers = dict(budget_headers(Format.RESPONSES, statuses))
    assert {name: value for name, value in headers.items() if name.startswith("x-codex")} == {
        "x-codex-primary-used-percent": "99.9",
        "x-codex-primary-window-minutes": "300",
        "x-codex-secondary-used-percent": "40.0",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": "1795262401",
    }
    assert set(headers) <= set(BUDGET_HEADERS)


def test_a_request_without_room_is_rejected_whatever_is_spent() -> None:
    headers = dict(budget_headers(Format.MESSAGES, [status("budget_5h", 3)], is_rejected=True))
    assert headers["x-gateway-budget-status"] == "rejected"
    assert headers["anthropic-ratelimit-unified-status"] == "rejected"
    assert headers["anthropic-ratelimit-unified-5h-status"] == "rejected"


def test_without_budgets_there_are_none() -> None:
    assert not list(budget_headers(Format.CHAT, []))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_clients_are_warned_before_they_are_rejected(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream(format) if streamed else fixture_reply(format))
    limit_key(gateway, budget_5h=2000 * UNIT)
    seen = []
    for spent in (0, 1600 * UNIT, 400 * UNIT):
        runtime = gateway.daemon.runtime
        runtime.quota.budget(HolderKind.KEY, gateway.token.id).settle(0, spent, runtime.now())
        answer = await gateway.post(format, stream=streamed)
        seen.append((answer.status, headers_of(answer)["x-gateway-budget-status"]))
        await gateway.rows()
    refused = 402 if format is Format.MESSAGES else 429
    assert seen == [(200, "allowed"), (200, "allowed_warning"), (refused, "rejected")]
    used = headers_of(answer)
    if format is Format.MESSAGES:
        assert used["anthropic-ratelimit-unified-representative-claim"] == "five_hour"
        assert float(used["anthropic-ratelimit-unified-5h-utilization"]) >= 1
    elif format is Format.RESPONSES:
        assert float(used["x-codex-primary-used-percent"]) >= 100


async def test_only_keys_with_a_budget_have_them(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Their own or their group's; on every answer, also of what costs nothing."""
    upstream.respond_with(fixture_reply("chat"))
    assert not headers_of(await gateway.post(Format.CHAT))
    limit_group(gateway, budget_usd=5 * UNIT)
    for answer in (
        await gateway.post(Format.CHAT),
        await gateway.post(Format.CHAT, b"{"),
        await gateway.get("/v1/models"),
    ):
        assert headers_of(answer) == {
            "x-gateway-budget-status": "allowed",
            "x-gateway-budget-window": "total",
            "x-gateway-budget-currency": "usd",
            "x-gateway-budget-limit": "5",
            "x-gateway-budget-remaining": "5",
        }


async def test_browsers_of_other_origins_can_read_them(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    server = {"cors": ["https://chat.example"]}
    async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
        answer = await gateway.post(Format.CHAT, headers={"origin": "https://chat.example"})
        exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert set(BUDGET_HEADERS) <= set(exposed)
