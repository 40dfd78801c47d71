"""Ids as clients send them, and the models of a group's patterns."""

from __future__ import annotations

import pytest

from gateway.config.schema import Config, Lifecycle, Model
from gateway.core.formats import Family
from gateway.routing.catalog import Catalog, matches

MODELS = (
    Model(id="beta-5.4", family=Family.BETA, aliases=("mini", "small")),
    Model(id="alpha-opus-4-8", family=Family.ALPHA),
    Model(id="vendor/alpha:8b", family=Family.ALPHA),
    Model(id="beta-old", family=Family.BETA, aliases=("old",), lifecycle=Lifecycle.RETIRED),
)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(MODELS)


@pytest.mark.parametrize(
    ("sent", "id"),
    [
        ("beta-5.4", "beta-5.4"),
        ("mini", "beta-5.4"),
        ("mini[1m]", "beta-5.4"),
        ("alpha-opus-4-8[1m]", "alpha-opus-4-8"),
        ("vendor/alpha:8b", "vendor/alpha:8b"),
    ],
)
def test_resolving_names(catalog: Catalog, sent: str, id: str) -> None:
    model = catalog.resolve(sent)
    assert model is not None
    assert model.id == id


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "[1m]",
        "BETA-5.4",
        "beta-5.4 ",
        "beta-5.4[1M]",
        "beta-5.4[1m][1m]",
        "beta-*",
        "beta-old",
        "old",
    ],
)
def test_unknown_names(catalog: Catalog, sent: str) -> None:
    assert catalog.resolve(sent) is None


def test_the_order_is_that_of_the_configuration(catalog: Catalog) -> None:
    assert [model.id for model in catalog] == ["beta-5.4", "alpha-opus-4-8", "vendor/alpha:8b"]
    config = Config()
    assert tuple(Catalog(config.models)) == config.models


@pytest.mark.parametrize(
    ("patterns", "ids"),
    [
        (["*"], {"beta-5.4", "alpha-opus-4-8", "vendor/alpha:8b"}),
        (["beta-*"], {"beta-5.4"}),
        (["family:alpha"], {"alpha-opus-4-8", "vendor/alpha:8b"}),
        (["alpha-opus-4-8", "family:beta"], {"alpha-opus-4-8", "beta-5.4"}),
        (["Beta-*", "family:gamma", "family:*", "mini"], set()),
        ([], set()),
    ],
)
def test_matching_ids_of_a_group(catalog: Catalog, patterns: list[str], ids: set[str]) -> None:
    assert catalog.matching_ids(patterns) == ids


def test_one_pattern() -> None:
    assert matches("beta-?.4", MODELS[0])
    assert not matches("beta", MODELS[0])
