"""Which channel serves a model in a format, and what is said where none does."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.config import parse_config
from gateway.core.formats import Family, Format, Lane
from gateway.errors import ConvertRequestFailed, ModelNotFound
from gateway.routing.catalog import Catalog
from gateway.routing.router import Candidate, Router

MODELS = [
    {"id": "alpha-1", "family": "alpha", "aliases": ["one"]},
    {"id": "beta-1", "family": "beta"},
    {"id": "beta-2", "family": "beta"},
    {"id": "beta-idle", "family": "beta"},
]


def line(name: str, spoken: str, models: Any, **fields: Any) -> dict[str, Any]:
    accounts = [{"name": f"{name}-a", "key": "k"}, {"name": f"{name}-b", "key": "k"}]
    base = {"name": name, "format": spoken, "base_url": "http://127.0.0.1:9/x", "models": models}
    return base | {"accounts": accounts} | fields


CHANNELS = [
    line("chat-1", "chat", {"beta-1": "up-1", "alpha-1": "up-a"}),
    line("chat-2", "chat", ["beta-1", "beta-2"]),
    line("messages-1", "messages", ["alpha-1"]),
    line("mended", "responses", ["beta-2"], lane="translated"),
]


@pytest.fixture
def router() -> Router:
    config = parse_config(orjson.dumps({"models": MODELS, "channels": CHANNELS}).decode())
    return Router(Catalog(config.models), config.channels)


def test_what_a_group_may_really_use(router: Router) -> None:
    everything = router.reach(["*"])
    assert everything.models == ("alpha-1", "beta-1", "beta-2"), "in the order of the catalog"
    assert everything.members == set(everything.models)
    assert everything.families == set(Family)
    assert router.reach(["family:alpha"]).families == {Family.ALPHA}
    assert router.reach(["beta-idle"]).models == ()
    assert router.reach([]).families == frozenset()


@pytest.mark.parametrize(
    ("sent", "asked", "channel", "model"),
    [
        ("beta-1", Format.CHAT, "chat-1", "up-1"),
        ("beta-2", Format.CHAT, "chat-2", "beta-2"),
        ("alpha-1", Format.CHAT, "chat-1", "up-a"),
        ("alpha-1", Format.MESSAGES, "messages-1", "alpha-1"),
        ("one[1m]", Format.MESSAGES, "messages-1", "alpha-1"),
    ],
)
def test_the_first_channel_of_the_format_serves(
    router: Router, sent: str, asked: Format, channel: str, model: str
) -> None:
    candidate = router.route(sent, asked, router.reach(["*"]))
    assert candidate == Candidate(channel, f"{channel}-a", asked, model, Lane.NATIVE)


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        ("beta-1", Format.MESSAGES),
        ("alpha-1", Format.RESPONSES),
        ("beta-2", Format.RESPONSES),
    ],
)
def test_formats_that_cannot_be_served_yet(router: Router, sent: str, asked: Format) -> None:
    with pytest.raises(ConvertRequestFailed) as told:
        router.route(sent, asked, router.reach(["*"]))
    assert told.value.detail


@pytest.mark.parametrize("sent", ["nobody", "", "beta-idle", "BETA-1"])
def test_models_that_nobody_has(router: Router, sent: str) -> None:
    with pytest.raises(ModelNotFound) as told:
        router.route(sent, Format.CHAT, router.reach(["*"]))
    assert told.value.message == f"model_not_found: no channel for model {sent} in this group"


def test_only_the_log_tells_unknown_from_unreachable(router: Router) -> None:
    told = []
    for sent in ("alpha-1", "nobody"):
        with pytest.raises(ModelNotFound) as refused:
            router.route(sent, Format.CHAT, router.reach(["beta-*"]))
        told.append(refused.value)
    assert told[0].message.replace("alpha-1", "nobody") == told[1].message
    assert told[0].detail != told[1].detail
