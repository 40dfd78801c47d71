"""What a key may do: its token, its group and the configuration together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.admission.access import Permit
from gateway.config import UserAgents, parse_config
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
CATALOG = Catalog.of(CONFIG.models)
ROUTER = Router(CATALOG, CONFIG.channels, CONFIG.families)
EVERYBODY = UserAgents()
GROUP = Group("default", ("*",), 0)
HOUSE = Holder(HolderKind.GATEWAY, "", "the gateway", UNLIMITED)


def permit(
    group: Group | None = GROUP,
    house: Holder = HOUSE,
    agents: UserAgents = EVERYBODY,
    **terms: Any,
) -> Permit:
    return Permit.for_token(token(**terms), group, ROUTER, house, agents)


def test_without_lists_everything_passes() -> None:
    free = permit()
    free.check_address("192.0.2.1")
    free.check_address("no address at all")
    assert free.check_user_agent("") is None
    free.check_can_generate()
    assert free.access.models == ("alpha-one", "beta-one")


@pytest.mark.parametrize("address", ["192.0.2.77", "::ffff:192.0.2.77", "2001:db8::1"])
def test_an_address_on_the_list(address: str) -> None:
    permit(addresses=("192.0.2.0/24", "2001:db8::/64")).check_address(address)


@pytest.mark.parametrize("address", ["192.0.3.1", "2001:db8:0:1::1", "192.0.2.77, 192.0.2.77", ""])
def test_an_address_that_is_not(address: str) -> None:
    with pytest.raises(PermissionDenied) as refused:
        permit(addresses=("192.0.2.0/24", "2001:db8::/64")).check_address(address)
    assert refused.value.message == "This key may not be used from this address"
    assert refused.value.detail == address


def test_an_empty_list_lets_no_address_pass() -> None:
    with pytest.raises(PermissionDenied):
        permit(addresses=()).check_address("192.0.2.1")


def test_user_agents_pass_all_lists_or_none() -> None:
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


def test_what_is_only_watched_passes_and_is_told() -> None:
    watched = permit(
        replace(GROUP, user_agents=("tool/",), user_agent_mode=UserAgentMode.OBSERVE),
        agents=UserAgents(mode="observe", allow=("tool/",)),
    )
    assert watched.check_user_agent("tool/1") is None
    assert watched.check_user_agent("other/1") == "user agent not on the list of group default"


def test_a_watched_list_does_not_excuse_from_an_enforced_one() -> None:
    listed = permit(
        replace(GROUP, user_agents=("tool/",), user_agent_mode=UserAgentMode.ENFORCE),
        agents=UserAgents(mode="observe", allow=("tool/",)),
    )
    with pytest.raises(UserAgentNotAllowed):
        listed.check_user_agent("other/1")


def test_a_probe_may_only_look() -> None:
    with pytest.raises(PermissionDenied, match="probe key"):
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
def test_a_list_of_models_narrows_what_the_group_reaches(
    patterns: tuple[str, ...], reached: tuple[str, ...]
) -> None:
    own = permit(models=patterns)
    assert own.access.models == reached
    assert own.group_access.models == ("alpha-one", "beta-one")


def test_a_list_of_models_never_widens_it() -> None:
    own = permit(replace(GROUP, patterns=("beta-*",)), models=("*",))
    assert own.access.models == ("beta-one",)
    with pytest.raises(ModelNotFound):
        own.route(ROUTER, "alpha-one", Format.CHAT)


def test_the_own_list_refuses_what_the_group_has() -> None:
    own = permit(models=("beta-*",))
    assert own.route(ROUTER, "beta-one", Format.CHAT).model == "beta-one"
    for sent in ("alpha-one", "first"):
        with pytest.raises(PermissionDenied) as refused:
            own.route(ROUTER, sent, Format.MESSAGES)
        assert refused.value.message == f"This key may not use the model {sent}"


def test_without_a_group_nothing_is_reached() -> None:
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
        HOUSE,
    )


def test_who_has_no_limits_is_passed_by_at_once() -> None:
    """Limits that came out of a database are other objects than the one that means none."""
    own = permit(replace(GROUP, limits=Limits()), limits=Limits())
    assert all(holder.limits is UNLIMITED for holder in own.holders)


PER_MINUTE = (Limits(requests_per_minute=5), Limits(tokens_per_minute=5))


@pytest.mark.parametrize("limits", PER_MINUTE)
def test_whoever_has_a_limit_per_minute_is_limited(limits: Limits) -> None:
    assert permit(limits=limits).has_minute_limits
    assert permit(replace(GROUP, limits=limits)).has_minute_limits
    assert permit(house=replace(HOUSE, limits=limits)).has_minute_limits


@pytest.mark.parametrize("limits", [UNLIMITED, Limits(concurrent=1), Limits(budget=5)])
def test_other_limits_show_in_no_header(limits: Limits) -> None:
    assert not permit(limits=limits).has_minute_limits


def test_a_reply_is_expected_to_leave_room_for_every_prompt_that_fits() -> None:
    limited = permit(
        replace(GROUP, limits=Limits(tokens_per_minute=700)),
        replace(HOUSE, limits=Limits(tokens_per_minute=500)),
        limits=Limits(tokens_per_minute=600),
    )
    assert limited.expected_output(100, 400) == 400
    assert limited.expected_output(100, 401) == 400
    assert limited.expected_output(499, 5000) == 1
    assert limited.expected_output(500, 5000) == limited.expected_output(501, 5000) == 0
    assert permit(limits=Limits(requests_per_minute=1)).expected_output(10**9, 5000) == 5000


def test_tariffs_are_those_of_the_group() -> None:
    own = permit(replace(GROUP, multiplier="0.1"))
    (model,) = (each for each in CATALOG if each.id == "alpha-one")
    assert own.model_price(model).description == "model 3, group 0.1"
    assert own.model_price(model) is own.price_by_id(CATALOG, "first")
    assert own.model_price(model).cost(Usage(input_tokens=10)) == 3_000_000
    assert own.price_by_id(CATALOG, "gamma") is None
    assert permit(None).model_price(model).description == "model 3, group 1"
