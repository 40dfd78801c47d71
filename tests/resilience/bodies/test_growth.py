"""What a body costs grows with its size, not with its square, whatever its shape."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from random import Random

import orjson
import pytest

from gateway.core.formats import Format
from tests.resilience.bodies.shapes import SHAPES, mixture
from tests.resilience.bodies.work import PAIRS, Pair, Work, measure

SMALL, LARGE = 250, 2000
MAX_GROWTH = 3 * LARGE / SMALL
FLOOR = 0.002
"""Seconds below which times tell nothing."""
MAX_EXPANSION = 30
"""Of a body whose references are resolved."""
ATTEMPTS = 4
"""A busy machine makes single measurements worse."""


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", SHAPES)
def test_work_grows_with_the_size(name: str) -> None:
    for client in Format:
        small, large = SHAPES[name](client, SMALL), SHAPES[name](client, LARGE)
        if small is None or large is None:
            continue
        for pair in PAIRS[client]:
            growth, work = _growth(orjson.dumps(small), orjson.dumps(large), pair)
            assert growth < MAX_GROWTH, (pair, growth, work)
            assert work.size < MAX_EXPANSION * len(orjson.dumps(large)), (pair, work)


@pytest.mark.parametrize("seed", range(40))
def test_work_for_a_mixture_grows_with_its_size(seed: int) -> None:
    """Several shapes in one body, which meet each other's reordering and merging."""
    for client in Format:
        names = Random(seed).sample([*SHAPES], 5)
        small, large = (orjson.dumps(mixture(client, names, n)) for n in (SMALL, LARGE))
        pair = Random(seed).choice(PAIRS[client])
        growth, work = _growth(small, large, pair)
        assert growth < MAX_GROWTH, (names, pair, growth, work)
        assert work.size < MAX_EXPANSION * len(large), (names, pair, work)


def _growth(small: bytes, large: bytes, pair: Pair) -> tuple[float, Work]:
    """The ratio of the times, and the work of the larger body."""
    growth, work = 0.0, measure(large, pair)
    for _ in range(ATTEMPTS):
        growth = work.seconds / max(measure(small, pair).seconds, FLOOR)
        if growth < MAX_GROWTH:
            break
        work = measure(large, pair)
    return growth, work
