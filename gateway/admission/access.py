"""Which clients may call, by what they call themselves. It must not know whose list it is, nor
whether others are refused or only watched.

What one key may do now: its token, its group and the configuration brought together.

Built once for a token and kept until one of the three is another, so that a request pays a lookup.
It must not know requests, nor who counts what is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Self

from gateway.admission.client_address import Network, in_networks
from gateway.config import REGEX_PREFIX, CompiledPattern, Model, UserAgents, compile_agent_pattern
from gateway.core.formats import Format
from gateway.core.limits import UNLIMITED
from gateway.errors import PermissionDenied, UserAgentNotAllowed
from gateway.quota.limits import Holder, HolderKind
from gateway.quota.pricing import Price
from gateway.routing.catalog import Catalog
from gateway.routing.router import ModelAccess, Route, Router
from gateway.store.records import Group, Token, UserAgentMode


@dataclass(frozen=True, slots=True)
class UserAgentList:
    """A list of user agents: beginnings, and regular expressions that are looked for anywhere in
    them. Case counts in both."""

    prefixes: tuple[str, ...]
    expressions: tuple[CompiledPattern, ...]

    @classmethod
    def parse(cls, patterns: Sequence[str] | None) -> Self:
        """The list as it is written (`gateway.config.check_agent`); None allows every agent, an
        empty one none."""
        written = ("",) if patterns is None else patterns
        return cls(
            tuple(each for each in written if not each.startswith(REGEX_PREFIX)),
            tuple(compile_agent_pattern(each) for each in written if each.startswith(REGEX_PREFIX)),
        )

    def allows(self, user_agent: str) -> bool:
        """Whether the agent is on the list; "" is a client that does not say what it is."""
        if user_agent.startswith(self.prefixes):
            return True
        if not self.expressions:
            return False
        text = user_agent.encode("utf-8", "replace").decode()  # headers may hold what is no text
        return any(each.search(text) for each in self.expressions)


@dataclass(frozen=True, slots=True)
class UserAgentRule:
    """`whose` list it is, in words."""

    owner: str
    allowed: UserAgentList
    enforced: bool


@dataclass(slots=True, eq=False)
class Permit:
    """`reach` is what the key may use, `group_reach` what its group may; `holders` are those whose
    limits count for it, and `limited` says whether any of them has some for requests or tokens.
    `tokens_per_minute` is the smallest limit of that kind."""

    token: Token
    access: ModelAccess
    group_access: ModelAccess
    holders: tuple[Holder, ...]
    has_minute_limits: bool
    tokens_per_minute: int | None
    multiplier: str
    networks: tuple[Network, ...] | None
    user_agent_rules: tuple[UserAgentRule, ...]
    _prices: dict[str, Price] = field(default_factory=dict)

    @classmethod
    def for_token(
        cls,
        token: Token,
        group: Group | None,
        router: Router,
        gateway_holder: Holder,
        agents: UserAgents,
    ) -> Permit:
        """`house` is the gateway as a holder, `agents` its own list. A group that does not exist
        reaches nothing."""
        group_reach = router.access_for(group.patterns if group else ())
        holders = [_holder(HolderKind.KEY, token.id, token), gateway_holder]
        if group is not None:
            holders.insert(1, _holder(HolderKind.GROUP, group.name, group))
        return cls(
            token=token,
            access=group_reach
            if token.models is None
            else router.restrict(group_reach, token.models),
            group_access=group_reach,
            holders=tuple(holders),
            has_minute_limits=any(map(_has_minute_limits, holders)),
            tokens_per_minute=_min_limit(holder.limits.tokens_per_minute for holder in holders),
            multiplier=group.multiplier if group else "1",
            networks=_networks(token.addresses),
            user_agent_rules=tuple(_user_agent_rules(token, group, agents)),
        )

    def check_address(self, address: str) -> None:
        """Raises `PermissionDenied`."""
        if self.networks is not None and not in_networks(address, self.networks):
            raise PermissionDenied("This key may not be used from this address", detail=address)

    def check_user_agent(self, agent: str) -> str | None:
        """What is odd about the user agent and passes. Raises `UserAgentNotAllowed`."""
        odd = None
        for each in self.user_agent_rules:
            if not each.allowed.allows(agent):
                odd = f"user agent not on the list of {each.owner}"
                if each.enforced:
                    raise UserAgentNotAllowed(detail=odd)
        return odd

    def check_can_generate(self) -> None:
        """Raises `PermissionDenied` where the key may only look."""
        if self.token.probe:
            raise PermissionDenied(
                "This is a probe key: it may list models, count tokens and ask for health"
            )

    def route(self, router: Router, model_name: str, client_format: Format) -> Route:
        """As `Router.route` does; and raises `PermissionDenied` where the key's own list forbids
        what its group allows."""
        route = router.route(model_name, client_format, self.group_access)
        if route.model not in self.access.model_ids:
            raise PermissionDenied(f"This key may not use the model {model_name}")
        return route

    def expected_output(self, input_tokens: int, output_tokens: int) -> int:
        """Output tokens to be expected of a prompt that names no most, where models usually write
        so many: what the limits leave, so that every prompt that fits them can pass some time."""
        most = self.tokens_per_minute
        return output_tokens if most is None else min(output_tokens, max(0, most - input_tokens))

    def model_price(self, model: Model) -> Price:
        """What the model costs this key's group."""
        known = self._prices.get(model.id)
        if known is None:
            known = self._prices[model.id] = Price.for_model(model, self.multiplier)
        return known

    def price_by_id(self, catalog: Catalog, model_id: str) -> Price | None:
        """The same for an id of the catalog."""
        model = catalog.resolve(model_id)
        return None if model is None else self.model_price(model)


def _holder(kind: HolderKind, id: str, record: Token | Group) -> Holder:
    return Holder(kind, id, record.name, record.limits or UNLIMITED)


def _has_minute_limits(holder: Holder) -> bool:
    limits = holder.limits
    return limits.requests_per_minute is not None or limits.tokens_per_minute is not None


def _min_limit(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _networks(addresses: Sequence[str] | None) -> tuple[Network, ...] | None:
    return None if addresses is None else tuple(ip_network(each) for each in addresses)


def _user_agent_rules(
    token: Token, group: Group | None, house: UserAgents
) -> Sequence[UserAgentRule]:
    lists = []
    if house.allow is not None:
        enforced = house.mode == "enforce"
        lists.append(UserAgentRule("the gateway", UserAgentList.parse(house.allow), enforced))
    if group is not None and group.user_agents is not None:
        enforced = group.user_agent_mode is UserAgentMode.ENFORCE
        lists.append(
            UserAgentRule(f"group {group.name}", UserAgentList.parse(group.user_agents), enforced)
        )
    if token.user_agents is not None:
        lists.append(UserAgentRule("the key", UserAgentList.parse(token.user_agents), True))
    return lists
