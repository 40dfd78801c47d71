"""Why every request of a key is refused, though its state is active."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.admin import token_lifecycle
from gateway.admission.access import Permit
from gateway.config.limits import UserAgents
from gateway.config.load import parse_config
from gateway.core.limits import UNLIMITED, Currency, Limits
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.routing.catalog import Catalog
from gateway.routing.router import Router
from gateway.store.records import Group, Token, TokenState

NOW = 1_800_000_000_000_000
CONFIG = """
models: [{id: beta-5.4, family: beta}, {id: beta-none, family: beta}]
channels:
  - {name: a, format: chat, base_url: "http://127.0.0.1:9/v1", models: [beta-5.4],
     accounts: [{name: a, key: none}]}
"""


def refusal(token: Token, group: Group | None, quota: Quota | None = None) -> str | None:
    config = parse_config(CONFIG)
    router = Router(Catalog(config.models), config.channels, config.families)
    everybody = Holder(HolderKind.GATEWAY, "", "the gateway", UNLIMITED)
    permit = Permit.for_token(token, group, router, everybody, UserAgents())
    return permit.refusal(quota or Quota(), NOW)


@pytest.fixture
def group() -> Group:
    return Group("team", ("*",), NOW)


@pytest.fixture
def token() -> Token:
    return token_lifecycle.create("alice", "team", {}, NOW)[0]


def test_a_key_that_works(group: Group, token: Token) -> None:
    assert refusal(token, group) is None


def test_it_has_expired(group: Group, token: Token) -> None:
    assert refusal(replace(token, expires_at=NOW), group) == "expired"
    assert refusal(replace(token, expires_at=NOW + 1), group) is None


@pytest.mark.parametrize("patterns", [("no-such-model",), ("beta-none",)])
def test_no_channel_has_its_models(group: Group, token: Token, patterns: tuple[str, ...]) -> None:
    assert refusal(replace(token, models=patterns), group) == "no models"
    assert refusal(token, replace(group, patterns=patterns)) == "no models"


def test_without_its_group_it_has_no_models(group: Group, token: Token) -> None:
    assert refusal(token, None) == "no models"


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent"])
def test_a_limit_that_admits_nothing(group: Group, token: Token, name: str) -> None:
    limits = Limits(**{name: 0})
    assert refusal(replace(token, limits=limits), group) == "limit of 0"
    assert refusal(token, replace(group, limits=limits)) == "limit of 0"


@pytest.mark.parametrize("kind", [HolderKind.KEY, HolderKind.GROUP])
def test_a_budget_of_it_or_of_its_group_is_used_up(
    group: Group, token: Token, kind: HolderKind
) -> None:
    quota, limits = Quota(), Limits(budget=1000)
    id = token.id if kind is HolderKind.KEY else group.name
    if kind is HolderKind.KEY:
        token = replace(token, limits=limits)
    else:
        group = replace(group, limits=limits)
    for spent, state in ((999, None), (1000, "budget used up")):
        quota.budget(kind, id, Currency.UNITS).load(spent, {}, {}, {})
        assert refusal(token, group, quota) == state


@pytest.mark.parametrize("state", [TokenState.DISABLED, TokenState.REVOKED])
def test_what_is_refused_by_its_state_needs_no_reason(
    group: Group, token: Token, state: TokenState
) -> None:
    assert refusal(replace(token, state=state, expires_at=NOW), group) is None
