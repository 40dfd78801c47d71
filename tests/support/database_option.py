"""`pytest --database=postgresql`: gateways and ledgers of tests are on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import databases


def pytest_addoption(parser: pytest.Parser) -> None:
    kinds = ("sqlite", "postgresql")
    parser.addoption("--database", choices=kinds, default=kinds[0], help="where ledgers are")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("database") == "postgresql":
        databases.use_server()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if databases.on_server():
        of_file = {item for item in items if item.get_closest_marker("sqlite")}
        items[:] = [item for item in items if item not in of_file]
        config.hook.pytest_deselected(items=list(of_file))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Drops the test's databases, so that disk and connections stay bounded."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    try:
        return (yield)
    finally:
        databases.drop_old(folder)
