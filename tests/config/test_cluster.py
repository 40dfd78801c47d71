"""Options of replicas: what is accepted, and errors that show no password."""

from __future__ import annotations

import pytest

from gateway.config.cluster import DatabaseServer, ServerUrl
from gateway.config.document import ConfigError
from gateway.config.load import parse_config
from gateway.config.schema import Config
from gateway.config.secrets import SecretResolver

PASSWORD = "p@ss-4471"
SECRETS = SecretResolver(
    {"PASSWORD": PASSWORD, "URL": "postgresql://gw:p%40ss-4471@db/gateway"}, allow_literals=False
)


def parse(text: str) -> Config:
    return parse_config(text, secrets=SECRETS)


def address(config: Config) -> ServerUrl:
    assert isinstance(config.database, DatabaseServer)
    return config.database.address


def test_without_options_there_is_one_process() -> None:
    config = parse("{}")
    assert config.database is None
    assert config.shared is None


def test_a_url_alone() -> None:
    config = parse("database: postgresql://gw@db:5433/gateway\nshared: valkeys://cache/2")
    assert (address(config).host, address(config).port, address(config).name) == (
        *("db", 5433),
        "gateway",
    )
    assert config.shared is not None
    assert (config.shared.address.port, config.shared.address.name) == (6379, "2")


def test_references_are_resolved_and_hidden() -> None:
    whole = parse("database: ${URL}")
    assert address(whole).password == PASSWORD
    part = parse("database: {url: 'postgresql://gw@db/gateway', password: '${PASSWORD}'}")
    assert part.database is not None
    assert part.database.password is not None
    assert part.database.password.get_secret_value() == PASSWORD
    assert PASSWORD not in f"{whole!r}{part!r}{part.model_dump_json()}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("database: postgresql://u:sekrit@h/d", "database: a literal key is accepted only"),
        ("database: mysql://h/d", "database: must begin with postgresql"),
        ("database: postgresql://h", "must end with the name of the database"),
        ("database: postgresql://h/d?sslmode=require", "must not have a query"),
        ("database: 'postgresql://h:x/d'", "is not a valid address"),
        ("database: {url: 'postgresql://h/d', password: sekrit}", "database.password: a literal"),
        ("database: {url: 'postgresql://h/d', tls: {key: /k}}", "database.tls: key needs cert"),
        ("shared: redis://h", "shared: must begin with valkey or valkeys"),
        ("shared: valkey://h/x", "must end with the database's number"),
        ("shared: 3", "shared: must be a mapping"),
        ("shared: valkey://h/0", ":1: shared: needs database"),
        ("replica: {expiry: 9}", "replica.expiry: "),
    ],
)
def test_mistakes_are_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert problem in str(error.value)
    assert "sekrit" not in str(error.value)


def test_a_replica_has_a_name() -> None:
    assert parse("replica: {name: eu-1}").replica.name_for(8080) == "eu-1"
    assert parse("{}").replica.name_for(8080).endswith("-8080")
