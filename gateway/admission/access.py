"""The permissions, limits and prices of one key: its token, its group and the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network

from gateway.admission.budgets import dimension_limits
from gateway.admission.client_address import Network, in_networks
from gateway.admission.dimensions import Dimensions, TrustedDimensions
from gateway.config.limits import REGEX_PREFIX, UserAgents, compile_agent_pattern
from gateway.core.formats import Endpoint, Format
from gateway.core.limits import UNLIMITED, Limits
from gateway.errors import PermissionDenied, UserAgentNotAllowed
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.quota.pricing import Price, price_periods
from gateway.routing.catalog import Catalog
from gateway.routing.router import ModelAccess, Route, Router
from gateway.store.records import (
    Group,
    OnSharedLoss,
    Token,
    TokenState,
    UserAgentMode,
    dimension_holder_id,
)


class UserAgentRule:
    """An allow-list of case-sensitive prefixes and of regular expressions that match anywhere;
    `owner` is text: "the gateway", "group team", "the key"."""

    def __init__(self, owner: str, patterns: Sequence[str], *, enforced: bool) -> None:
        """The patterns are valid (`gateway.config.limits.validate_agent_pattern`)."""
        self.owner = owner
        self.enforced = enforced
        regular = [pattern for pattern in patterns if pattern.startswith(REGEX_PREFIX)]
        self.searches = tuple(map(compile_agent_pattern, regular))
        self.prefixes = tuple(pattern for pattern in patterns if pattern not in regular)

    def allows(self, user_agent: str) -> bool:
        """ "" is a client without a user agent."""
        if user_agent.startswith(self.prefixes):
            return True
        if not self.searches:
            return False
        text = user_agent.encode("utf-8", "replace").decode()  # headers can have invalid UTF-8
        return any(search(text) for search in self.searches)


@dataclass(slots=True, eq=False)
class Permit:
    """`access` are the models of the key, `group_access` those of its group; `holders` have the
    limits that apply; `has_minute_limits`: any of them per minute; `has_budget`: any of them of
    money. `tokens_per_minute` is the smallest. `stores_replies`: they can be continued by their
    ids. `trusted` is None where the key trusts nothing; `dimension_limits` are those of each end
    user and each session. Built once per token, and again when group or configuration change."""

    token: Token
    access: ModelAccess
    group_access: ModelAccess
    holders: tuple[Holder, ...]
    has_minute_limits: bool
    has_budget: bool
    tokens_per_minute: int | None
    multiplier: str
    networks: tuple[Network, ...] | None
    user_agent_rules: tuple[UserAgentRule, ...]
    stores_replies: bool = True
    on_shared_loss: OnSharedLoss = OnSharedLoss.SHARE
    trusted: TrustedDimensions | None = None
    dimension_limits: tuple[tuple[HolderKind, Limits], ...] = ()
    _prices: dict[str, list[tuple[int, Price]]] = field(default_factory=dict)

    @classmethod
    def for_token(
        cls,
        token: Token,
        group: Group | None,
        router: Router,
        gateway_holder: Holder,
        user_agents: UserAgents,
        *,
        stores_replies: bool = True,
        hash_key: str | None = None,
    ) -> Permit:
        """`user_agents` is the gateway's list, `stores_replies` its setting, `hash_key` that of end
        users. Without a group there are no models."""
        access = group_access = router.access_for(group.patterns if group else ())
        if token.models is not None:
            access = router.restrict(group_access, token.models)
        holders = [_holder(HolderKind.KEY, token.id, token), gateway_holder]
        if group is not None:
            holders.insert(1, _holder(HolderKind.GROUP, group.name, group))
        limits = [holder.limits for holder in holders]
        tokens = [each for limit in limits if (each := limit.tokens_per_minute) is not None]
        return cls(
            token=token,
            access=access,
            group_access=group_access,
            holders=tuple(holders),
            has_minute_limits=bool(tokens)
            or any(limit.requests_per_minute is not None for limit in limits),
            has_budget=any(limit.has_budget for limit in limits),
            tokens_per_minute=min(tokens, default=None),
            multiplier=group.multiplier if group else "1",
            networks=None if token.addresses is None else tuple(map(ip_network, token.addresses)),
            user_agent_rules=tuple(_user_agent_rules(token, group, user_agents)),
            stores_replies=stores_replies and (group is None or group.store_replies),
            on_shared_loss=group.on_shared_loss if group else OnSharedLoss.SHARE,
            trusted=TrustedDimensions(token.trust, hash_key) if token.trust else None,
            dimension_limits=tuple(dimension_limits(token).items()),
        )

    def for_stated(self, stated: Dimensions) -> Permit:
        """The permit of one request, with the limits of the end user and the session for whom it
        is."""
        added = [
            Holder(kind, dimension_holder_id(self.token.id, text), text, limits)
            for kind, limits in self.dimension_limits
            if (text := getattr(stated, kind)) is not None
        ]
        return replace(self, holders=(*self.holders, *added), has_budget=True) if added else self

    def refusal(self, quota: Quota, now: int) -> str | None:
        """Tells why every request is refused (unix microseconds), though the key's state is active:
        `expired`, `no models`, `limit of 0` or `budget used up`."""
        if self.token.state is not TokenState.ACTIVE:
            return None
        if self.token.has_expired(now):
            return "expired"
        if not self.access.model_ids:
            return "no models"
        for limits in (holder.limits for holder in self.holders):
            if 0 in (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent):
                return "limit of 0"
        budgets = quota.budget_statuses(self.holders, now)
        return (
            "budget used up" if any(each.spent >= each.budget.limit for each in budgets) else None
        )

    def check_address(self, address: str) -> None:
        """Raises `PermissionDenied`."""
        if self.networks is not None and not in_networks(address, self.networks):
            raise PermissionDenied("This key is not allowed from this address", detail=address)

    def check_user_agent(self, user_agent: str) -> str | None:
        """The warning about a user agent that is not on an observe-only list. Raises
        `UserAgentNotAllowed`."""
        warning = None
        for rule in self.user_agent_rules:
            if not rule.allows(user_agent):
                warning = f"user agent not on the list of {rule.owner}"
                if rule.enforced:
                    raise UserAgentNotAllowed(detail=warning)
        return warning

    def check_can_generate(self) -> None:
        """Raises `PermissionDenied` for a health-check key."""
        if self.token.probe:
            raise PermissionDenied(
                "This is a health-check key: it can only list models and count tokens"
            )

    def route(self, router: Router, model_name: str, client_format: Format | Endpoint) -> Route:
        """Routes like `Router.route`; raises `PermissionDenied` for a model of the group that is
        not on the key's own list."""
        route = router.route(model_name, client_format, self.group_access)
        if route.model not in self.access.model_ids:
            patterns = ", ".join(self.token.models or ())
            raise PermissionDenied(
                f"The model {model_name} is not allowed for this key",
                detail=f"the key's models are {patterns}",
            )
        return route

    def expected_output(self, input_tokens: int, output_tokens: int) -> int:
        """Estimates the output of a prompt without a token limit if the model usually has
        `output_tokens`: at most what the limits allow, so that every prompt fits at some time."""
        limit = self.tokens_per_minute
        return output_tokens if limit is None else min(output_tokens, max(0, limit - input_tokens))

    def price(self, catalog: Catalog, model_id: str, time: int) -> Price | None:
        """The price for the key's group of requests that start then (Unix microseconds); None for
        an unknown model."""
        periods = self._prices.get(model_id)
        if periods is None:
            if (model := catalog.resolve(model_id)) is None:
                return None
            own = catalog.own_prices(model.id)
            periods = price_periods(model, self.multiplier, catalog.money, own)
            self._prices[model_id] = periods
        for start, price in periods:
            if start <= time:
                return price
        return None


def _holder(kind: HolderKind, id: str, record: Token | Group) -> Holder:
    return Holder(kind, id, record.name, record.limits or UNLIMITED)


def _user_agent_rules(
    token: Token, group: Group | None, gateway: UserAgents
) -> Iterator[UserAgentRule]:
    if gateway.allow is not None:
        yield UserAgentRule("the gateway", gateway.allow, enforced=gateway.mode == "enforce")
    if group is not None and group.user_agents is not None:
        enforced = group.user_agent_mode is UserAgentMode.ENFORCE
        yield UserAgentRule(f"group {group.name}", group.user_agents, enforced=enforced)
    if token.user_agents is not None:
        yield UserAgentRule("the key", token.user_agents, enforced=True)
