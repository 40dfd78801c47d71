"""Permissions of a key: its token, its group and the configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.admission.access import Permit
from gateway.config.limits import UserAgents
from gateway.config.load import parse_config
from gateway.core.events import Usage
from gateway.core.formats import Format
from gateway.core.limits import UNLIMITED, Limits
from gateway.errors import ModelNotFound, PermissionDenied, UserAgentNotAllowed
from gateway.quota.limits import Holder, HolderKind
from gateway.routing.catalog import Catalog
from gateway.routing.router import Router
from gateway.store.records import Group, UserAgentMode
from tests.store.sample_rows import token

CONFIG = parse_config(
    """
models:
  - {id: alpha-one, family: alpha, multiplier: 3, aliases: [first]}
  - {id: beta-one, family: beta}
  - {id: beta-two, family: beta}
channels:
  - name: main
    format: chat
    base_url: http://127.0.0.1:1/v1
    models: [alpha-one, beta-one]
    accounts: [{name: a1, key: secret}]
"""
)
CATALOG = Catalog(CONFIG.models)
ROUTER = Router(CATALOG, CONFIG.channels, CONFIG.families)
EVERYBODY = UserAgents()
GROUP = Group("default", ("*",), 0)
GATEWAY = Holder(HolderKind.GATEWAY, "", "the gateway", UNLIMITED)


def permit(
    group: Group | None = GROUP,
    gateway: Holder = GATEWAY,
    agents: UserAgents = EVERYBODY,
    **terms: Any,
) -> Permit:
    return Permit.for_token(token(**terms), group, ROUTER, gateway, agents)


def test_without_lists_everything_is_allowed() -> None:
    free = permit()
    free.check_address("192.0.2.1")
    free.check_address("no address at all")
    assert free.check_user_agent("") is None
    free.check_can_generate()
    assert free.access.models == ("alpha-one", "beta-one")


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize("group", [True, False])
def test_replies_are_stored_where_gateway_and_group_allow_it(gateway: bool, group: bool) -> None:
    storing = replace(GROUP, store_replies=group)
    terms = (token(), storing, ROUTER, GATEWAY, EVERYBODY)
    permit = Permit.for_token(*terms, stores_replies=gateway)
    assert permit.stores_replies == (gateway and group)


@pytest.mark.parametrize("address", ["192.0.2.77", "::ffff:192.0.2.77", "2001:db8::1"])
def test_an_allowed_address(address: str) -> None:
    permit(addresses=("192.0.2.0/24", "2001:db8::/64")).check_address(address)


@pytest.mark.parametrize("address", ["192.0.3.1", "2001:db8:0:1::1", "192.0.2.77, 192.0.2.77", ""])
def test_other_addresses(address: str) -> None:
    with pytest.raises(PermissionDenied) as refused:
        permit(addresses=("192.0.2.0/24", "2001:db8::/64")).check_address(address)
    assert refused.value.message == "This key is not allowed from this address"
    assert refused.value.detail == address


def test_an_empty_list_allows_no_address() -> None:
    with pytest.raises(PermissionDenied):
        permit(addresses=()).check_address("192.0.2.1")


def test_user_agents_have_to_be_on_all_lists() -> None:
    listed = permit(
        replace(GROUP, user_agents=("tool/", "editor/")),
        agents=UserAgents(allow=("tool/", "re:^(editor|probe)/[23]")),
        user_agents=("tool/2", "editor/2"),
    )
    assert listed.check_user_agent("tool/2.1") is None
    assert listed.check_user_agent("editor/2.0") is None
    for agent, whose in {
        "other/1": "the gateway",
        "editor/1": "the gateway",
        "probe/2": "group default",
        "editor/3": "the key",
        "": "the gateway",
    }.items():
        with pytest.raises(UserAgentNotAllowed) as refused:
            listed.check_user_agent(agent)
        assert refused.value.message == "user agent not allowed"
        assert refused.value.detail == f"user agent not on the list of {whose}"


def test_an_observed_user_agent_passes_with_a_warning() -> None:
    watched = permit(
        replace(GROUP, user_agents=("tool/",), user_agent_mode=UserAgentMode.OBSERVE),
        agents=UserAgents(mode="observe", allow=("tool/",)),
    )
    assert watched.check_user_agent("tool/1") is None
    assert watched.check_user_agent("other/1") == "user agent not on the list of group default"


def test_an_enforced_list_applies_after_an_observed_one() -> None:
    listed = permit(
        replace(GROUP, user_agents=("tool/",), user_agent_mode=UserAgentMode.ENFORCE),
        agents=UserAgents(mode="observe", allow=("tool/",)),
    )
    with pytest.raises(UserAgentNotAllowed):
        listed.check_user_agent("other/1")


def test_a_health_check_key_cannot_generate() -> None:
    with pytest.raises(PermissionDenied, match="health-check key"):
        permit(probe=True).check_can_generate()


@pytest.mark.parametrize(
    ("patterns", "reached"),
    [
        (("*",), ("alpha-one", "beta-one")),
        (("beta-*",), ("beta-one",)),
        (("family:alpha",), ("alpha-one",)),
        (("beta-two", "gamma"), ()),
        ((), ()),
    ],
)
def test_a_list_of_models_restricts_the_groups(
    patterns: tuple[str, ...], reached: tuple[str, ...]
) -> None:
    own = permit(models=patterns)
    assert own.access.models == reached
    assert own.group_access.models == ("alpha-one", "beta-one")


def test_a_list_of_models_never_extends_the_groups() -> None:
    own = permit(replace(GROUP, patterns=("beta-*",)), models=("*",))
    assert own.access.models == ("beta-one",)
    with pytest.raises(ModelNotFound):
        own.route(ROUTER, "alpha-one", Format.CHAT)


def test_models_of_the_group_that_the_key_does_not_have() -> None:
    own = permit(models=("beta-*",))
    assert own.route(ROUTER, "beta-one", Format.CHAT).model == "beta-one"
    for sent in ("alpha-one", "first"):
        with pytest.raises(PermissionDenied) as refused:
            own.route(ROUTER, sent, Format.MESSAGES)
        assert refused.value.message == f"The model {sent} is not allowed for this key"


def test_without_a_group_there_are_no_models() -> None:
    lost = permit(None)
    assert lost.access.models == ()
    with pytest.raises(ModelNotFound):
        lost.route(ROUTER, "beta-one", Format.CHAT)
    assert [holder.kind for holder in lost.holders] == [HolderKind.KEY, HolderKind.GATEWAY]


def test_holders_are_the_key_its_group_and_the_gateway() -> None:
    limits = Limits(budget=7)
    holders = permit(replace(GROUP, limits=limits), limits=Limits(concurrent=1)).holders
    assert holders == (
        Holder(HolderKind.KEY, "tok_0", "name 0", Limits(concurrent=1)),
        Holder(HolderKind.GROUP, "default", "default", limits),
        GATEWAY,
    )


def test_without_limits() -> None:
    """Limits from a database are other objects than `UNLIMITED`."""
    own = permit(replace(GROUP, limits=Limits()), limits=Limits())
    assert all(holder.limits is UNLIMITED for holder in own.holders)


PER_MINUTE = (Limits(requests_per_minute=5), Limits(tokens_per_minute=5))


@pytest.mark.parametrize("limits", PER_MINUTE)
def test_any_holder_with_a_limit_per_minute(limits: Limits) -> None:
    assert permit(limits=limits).has_minute_limits
    assert permit(replace(GROUP, limits=limits)).has_minute_limits
    assert permit(gateway=replace(GATEWAY, limits=limits)).has_minute_limits


@pytest.mark.parametrize("limits", [UNLIMITED, Limits(concurrent=1), Limits(budget=5)])
def test_other_limits_are_not_per_minute(limits: Limits) -> None:
    assert not permit(limits=limits).has_minute_limits


def test_expected_output_leaves_room_for_every_prompt_that_fits() -> None:
    limited = permit(
        replace(GROUP, limits=Limits(tokens_per_minute=700)),
        replace(GATEWAY, limits=Limits(tokens_per_minute=500)),
        limits=Limits(tokens_per_minute=600),
    )
    assert limited.expected_output(100, 400) == 400
    assert limited.expected_output(100, 401) == 400
    assert limited.expected_output(499, 5000) == 1
    assert limited.expected_output(500, 5000) == limited.expected_output(501, 5000) == 0
    assert permit(limits=Limits(requests_per_minute=1)).expected_output(10**9, 5000) == 5000


def test_prices_are_those_of_the_group() -> None:
    own = permit(replace(GROUP, multiplier="0.1"))
    price = own.price(CATALOG, "alpha-one", 0)
    assert price is not None and price.description == "model 3, group 0.1"
    assert own.price(CATALOG, "alpha-one", 0) is price
    assert price.cost(Usage(input_tokens=10)) == (3_000_000, 0)
    assert own.price(CATALOG, "gamma", 0) is None
    of_no_group = permit(None).price(CATALOG, "alpha-one", 0)
    assert of_no_group is not None and of_no_group.description == "model 3, group 1"
