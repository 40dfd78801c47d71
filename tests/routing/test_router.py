"""The candidates of a model by client format, and the errors without one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.config.load import parse_config
from gateway.core.formats import Family, Format, Lane
from gateway.errors import FormatNotServed, ModelNotFound
from gateway.routing.catalog import Catalog
from gateway.routing.router import Candidate, Route, Router

MODELS = [
    {"id": "alpha-1", "family": "alpha", "aliases": ["one"]},
    {"id": "beta-1", "family": "beta"},
    {"id": "beta-2", "family": "beta"},
    {"id": "beta-idle", "family": "beta"},
]


def line(name: str, upstream_format: str, models: Any, **fields: Any) -> dict[str, Any]:
    accounts = [{"name": f"{name}-a", "key": "k"}, {"name": f"{name}-b", "key": "k"}]
    base = {
        "name": name,
        "format": upstream_format,
        "base_url": "http://127.0.0.1:9/x",
        "models": models,
    }
    return base | {"accounts": accounts} | fields


CHANNELS = [
    line("chat-1", "chat", {"beta-1": "up-1", "alpha-1": "up-a"}),
    line("chat-2", "chat", ["beta-1", "beta-2"]),
    line("messages-1", "messages", ["alpha-1"]),
    line("mended", "responses", ["beta-2"], lane="translated"),
]


def router_of(channels: list[dict[str, Any]] = CHANNELS, **config: Any) -> Router:
    text = orjson.dumps({"models": MODELS, "channels": channels} | config).decode()
    parsed = parse_config(text)
    return Router(Catalog(parsed.models), parsed.channels, parsed.families)


@pytest.fixture
def router() -> Router:
    return router_of()


def routed(router: Router, sent: str, client_format: Format) -> Route:
    return router.route(sent, client_format, router.access_for(["*"]))


def route(router: Router, sent: str, client_format: Format) -> Candidate:
    return routed(router, sent, client_format).candidates[0]


def test_access_for_patterns(router: Router) -> None:
    everything = router.access_for(["*"])
    assert everything.models == ("alpha-1", "beta-1", "beta-2"), "in the order of the catalog"
    assert everything.model_ids == set(everything.models)
    assert everything.families == set(Family)
    assert router.access_for(["family:alpha"]).families == {Family.ALPHA}
    unserved = router.access_for(["beta-idle"])
    assert (unserved.models, unserved.families) == ((), {Family.BETA})
    assert router.access_for([]).families == frozenset()


@pytest.mark.parametrize(
    ("sent", "client_format", "channel", "upstream_format", "model"),
    [
        ("beta-1", Format.CHAT, "chat-1", Format.CHAT, "up-1"),
        ("beta-2", Format.CHAT, "chat-2", Format.CHAT, "beta-2"),
        ("alpha-1", Format.CHAT, "chat-1", Format.CHAT, "up-a"),
        ("alpha-1", Format.MESSAGES, "messages-1", Format.MESSAGES, "alpha-1"),
        ("one[1m]", Format.MESSAGES, "messages-1", Format.MESSAGES, "alpha-1"),
    ],
)
def test_the_first_channel_of_the_client_format_comes_first(
    router: Router,
    sent: str,
    client_format: Format,
    channel: str,
    upstream_format: Format,
    model: str,
) -> None:
    candidate = route(router, sent, client_format)
    assert candidate.channel == channel
    assert candidate.account == f"{channel}-a"
    assert (candidate.format, candidate.lane) == (upstream_format, Lane.NATIVE)
    assert candidate.target.model == model
    assert candidate.model == ("alpha-1" if sent == "one[1m]" else sent)


@pytest.mark.parametrize(
    ("sent", "client_format", "channel"),
    [
        ("beta-1", Format.MESSAGES, "chat-1"),
        ("beta-1", Format.RESPONSES, "chat-1"),
        ("beta-2", Format.MESSAGES, "mended"),
        ("beta-2", Format.RESPONSES, "mended"),
        ("alpha-1", Format.RESPONSES, "messages-1"),
    ],
)
def test_another_format_is_translated(
    router: Router, sent: str, client_format: Format, channel: str
) -> None:
    candidate = route(router, sent, client_format)
    assert (candidate.channel, candidate.lane) == (channel, Lane.TRANSLATED)


@pytest.mark.parametrize(
    ("family", "order"),
    [("alpha", ["messages", "responses", "chat"]), ("beta", ["responses", "chat", "messages"])],
)
@pytest.mark.parametrize("client_format", Format)
def test_channels_by_client_format(family: str, order: list[str], client_format: Format) -> None:
    """Removing channels one by one: the client's format, the same translated, then others in
    the family's order of preference; among equals the first."""
    model = f"{family}-1"
    mended = line(f"{client_format}-mended", client_format, [model], lane="translated")
    having = [
        mended,
        *(
            line(f"{upstream_format}-{each}", upstream_format, [model])
            for each in "ab"
            for upstream_format in Format
        ),
    ]
    others = [upstream_format for upstream_format in order if upstream_format != client_format]
    wanted = [
        *(f"{client_format}-{each}" for each in "ab"),
        f"{client_format}-mended",
        *(f"{upstream_format}-{each}" for upstream_format in others for each in "ab"),
    ]
    served = []
    while having:
        candidate = route(router_of(having), model, client_format)
        served.append(candidate.channel)
        native = candidate.channel in wanted[:2]
        assert candidate.lane is (Lane.NATIVE if native else Lane.TRANSLATED)
        having = [channel for channel in having if channel["name"] != candidate.channel]
    assert served == wanted


def test_every_account_with_the_model_is_a_candidate(router: Router) -> None:
    found = routed(router, "beta-1", Format.CHAT)
    assert found.model == "beta-1"
    assert found.account_refs == (
        ("chat-1", "chat-1-a"),
        ("chat-1", "chat-1-b"),
        ("chat-2", "chat-2-a"),
        ("chat-2", "chat-2-b"),
    )
    assert {candidate.tier for candidate in found.candidates} == {0}, "all serve equally well"
    assert [candidate.target.model for candidate in found.candidates] == ["up-1"] * 2 + [
        "beta-1"
    ] * 2


def test_less_preferred_formats_are_separate_tiers(router: Router) -> None:
    found = routed(router, "alpha-1", Format.RESPONSES)
    assert [(each.channel, each.tier) for each in found.candidates] == [
        ("messages-1", 0),
        ("messages-1", 0),
        ("chat-1", 1),
        ("chat-1", 1),
    ]
    found = routed(router, "beta-2", Format.CHAT)
    assert [(each.channel, each.tier, each.lane) for each in found.candidates[::2]] == [
        ("chat-2", 0, Lane.NATIVE),
        ("mended", 1, Lane.TRANSLATED),
    ]


def test_priorities_are_tiers_within_a_format() -> None:
    """A channel's priority precedes its accounts'; the format precedes both."""
    accounts = [
        {"name": "spare", "key": "k", "priority": -1},
        {"name": "main", "key": "k"},
        {"name": "same", "key": "k"},
    ]
    found = routed(
        router_of(
            [
                line("other", "messages", ["beta-1"], priority=99),
                line("low", "chat", ["beta-1"], accounts=accounts),
                line("high", "chat", ["beta-1"], accounts=accounts[:2], priority=1),
            ]
        ),
        "beta-1",
        Format.CHAT,
    )
    assert [(*each.account_ref, each.tier) for each in found.candidates] == [
        ("high", "main", 0),
        ("high", "spare", 1),
        ("low", "main", 2),
        ("low", "same", 2),
        ("low", "spare", 3),
        ("other", "other-a", 4),
        ("other", "other-b", 4),
    ]


def test_weights_of_channel_and_account_multiply() -> None:
    accounts = [{"name": "a", "key": "k", "weight": 3}, {"name": "b", "key": "k", "weight": 0}]
    channels = [
        line("one", "chat", ["beta-1"], accounts=accounts, weight=0.5, affinity=False),
        line("two", "chat", ["beta-1"]),
    ]
    found = routed(router_of(channels), "beta-1", Format.CHAT)
    assert [each.weight for each in found.candidates] == [1.5, 0, 1, 1]
    assert [each.uses_affinity for each in found.candidates] == [False, False, True, True]


@pytest.mark.parametrize("sent", ["alpha-1", "one"])
def test_an_endpoint_closed_to_a_family(sent: str) -> None:
    router = router_of(families={"alpha": {"endpoints": ["chat", "responses"]}})
    with pytest.raises(FormatNotServed) as caught:
        route(router, sent, Format.MESSAGES)
    assert caught.value.detail == "messages is closed to alpha models"
    assert route(router, sent, Format.CHAT)
    assert route(router, "beta-1", Format.MESSAGES)
    with pytest.raises(ModelNotFound):
        router.route(sent, Format.MESSAGES, router.access_for(["beta-*"]))


@pytest.mark.parametrize("sent", ["nobody", "", "beta-idle", "BETA-1"])
def test_models_without_a_channel(router: Router, sent: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        router.route(sent, Format.CHAT, router.access_for(["*"]))
    assert caught.value.message == f"model_not_found: no channel for model {sent} in this group"


def test_only_the_log_distinguishes_unknown_from_unreachable(router: Router) -> None:
    results = []
    for sent in ("alpha-1", "nobody"):
        with pytest.raises(ModelNotFound) as refused:
            router.route(sent, Format.CHAT, router.access_for(["beta-*"]))
        results.append(refused.value)
    assert results[0].message.replace("alpha-1", "nobody") == results[1].message
    assert results[0].detail != results[1].detail
