"""What one key may do now: its token, its group and the configuration brought together.

Built once for a token and kept until one of the three is another, so that a request pays a lookup.
It must not know requests, nor who counts what is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network

from gateway.admission.addresses import Network, among
from gateway.config import Model, UserAgents
from gateway.core.formats import Format
from gateway.core.limits import UNLIMITED
from gateway.errors import PermissionDenied, UserAgentNotAllowed
from gateway.quota.agents import Agents
from gateway.quota.limits import Holder, HolderKind
from gateway.quota.tariff import Tariff
from gateway.routing.catalog import Catalog
from gateway.routing.router import Reach, Route, Router
from gateway.store.records import AgentMode, Group, Token


@dataclass(frozen=True, slots=True)
class AgentList:
    """`whose` list it is, in words."""

    whose: str
    agents: Agents
    enforced: bool


@dataclass(slots=True, eq=False)
class Permit:
    """`reach` is what the key may use, `group_reach` what its group may; `holders` are those whose
    limits count for it, and `limited` says whether any of them has some for requests or tokens.
    `tokens_per_minute` is the smallest limit of that kind."""

    token: Token
    reach: Reach
    group_reach: Reach
    holders: tuple[Holder, ...]
    limited: bool
    tokens_per_minute: int | None
    multiplier: str
    networks: tuple[Network, ...] | None
    agent_lists: tuple[AgentList, ...]
    _tariffs: dict[str, Tariff] = field(default_factory=dict)

    @classmethod
    def of(
        cls, token: Token, group: Group | None, router: Router, house: Holder, agents: UserAgents
    ) -> Permit:
        """`house` is the gateway as a holder, `agents` its own list. A group that does not exist
        reaches nothing."""
        group_reach = router.reach(group.patterns if group else ())
        holders = [_holder(HolderKind.KEY, token.id, token), house]
        if group is not None:
            holders.insert(1, _holder(HolderKind.GROUP, group.name, group))
        return cls(
            token=token,
            reach=group_reach if token.models is None else router.within(group_reach, token.models),
            group_reach=group_reach,
            holders=tuple(holders),
            limited=any(map(_shown, holders)),
            tokens_per_minute=_least(holder.limits.tokens_per_minute for holder in holders),
            multiplier=group.multiplier if group else "1",
            networks=_networks(token.addresses),
            agent_lists=tuple(_agent_lists(token, group, agents)),
        )

    def check_address(self, address: str) -> None:
        """Raises `PermissionDenied`."""
        if self.networks is not None and not among(address, self.networks):
            raise PermissionDenied("This key may not be used from this address", detail=address)

    def check_agent(self, agent: str) -> str | None:
        """What is odd about the user agent and passes. Raises `UserAgentNotAllowed`."""
        odd = None
        for each in self.agent_lists:
            if not each.agents.allows(agent):
                odd = f"user agent not on the list of {each.whose}"
                if each.enforced:
                    raise UserAgentNotAllowed(detail=odd)
        return odd

    def check_use(self) -> None:
        """Raises `PermissionDenied` where the key may only look."""
        if self.token.probe:
            raise PermissionDenied(
                "This is a probe key: it may list models, count tokens and ask for health"
            )

    def route(self, router: Router, sent: str, asked: Format) -> Route:
        """As `Router.route` does; and raises `PermissionDenied` where the key's own list forbids
        what its group allows."""
        route = router.route(sent, asked, self.group_reach)
        if route.model not in self.reach.members:
            raise PermissionDenied(f"This key may not use the model {sent}")
        return route

    def expected(self, input_tokens: int, output_tokens: int) -> int:
        """Output tokens to be expected of a prompt that names no most, where models usually write
        so many: what the limits leave, so that every prompt that fits them can pass some time."""
        most = self.tokens_per_minute
        return output_tokens if most is None else min(output_tokens, max(0, most - input_tokens))

    def tariff(self, model: Model) -> Tariff:
        """What the model costs this key's group."""
        known = self._tariffs.get(model.id)
        if known is None:
            known = self._tariffs[model.id] = Tariff.of(model, self.multiplier)
        return known

    def price(self, catalog: Catalog, model_id: str) -> Tariff | None:
        """The same for an id of the catalog."""
        model = catalog.resolve(model_id)
        return None if model is None else self.tariff(model)


def _holder(kind: HolderKind, id: str, record: Token | Group) -> Holder:
    return Holder(kind, id, record.name, record.limits or UNLIMITED)


def _shown(holder: Holder) -> bool:
    limits = holder.limits
    return limits.requests_per_minute is not None or limits.tokens_per_minute is not None


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _networks(addresses: Sequence[str] | None) -> tuple[Network, ...] | None:
    return None if addresses is None else tuple(ip_network(each) for each in addresses)


def _agent_lists(token: Token, group: Group | None, house: UserAgents) -> Sequence[AgentList]:
    lists = []
    if house.allow is not None:
        enforced = house.mode == "enforce"
        lists.append(AgentList("the gateway", Agents.of(house.allow), enforced))
    if group is not None and group.user_agents is not None:
        enforced = group.user_agent_mode is AgentMode.ENFORCE
        lists.append(AgentList(f"group {group.name}", Agents.of(group.user_agents), enforced))
    if token.user_agents is not None:
        lists.append(AgentList("the key", Agents.of(token.user_agents), True))
    return lists
