"""The changes of a new configuration, by name."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.admin.reload import ConfigChanges, compare_configs, keep_fixed_settings
from gateway.config.load import parse_config
from gateway.config.schema import Config


def config(*accounts: str, secret: str = "abc-1", **fields: Any) -> Config:
    named = [{"name": account, "key": secret} for account in accounts]
    channel = {"name": "a", "format": "chat", "base_url": "http://127.0.0.1:1/v1"}
    channel |= {"models": ["beta-5.4"], "accounts": named}
    text = orjson.dumps({"channels": [channel] if accounts else []} | fields).decode()
    return parse_config(text)


def test_changes_are_named() -> None:
    assert compare_configs(config("one", "two"), config("two", "three")) == ConfigChanges(
        added=("account a/three",), removed=("account a/one",)
    )
    assert compare_configs(config(), config("one")).added == ("channel a", "account a/one")
    models = [{"id": "beta-x", "family": "beta"}]
    assert compare_configs(config(), config(models=models)).added == ("model beta-x",)
    changed = [{"id": "beta-x", "family": "beta", "context": 7}]
    assert compare_configs(config(models=models), config(models=changed)).changed == (
        "model beta-x",
    )
    assert compare_configs(
        config("one"), config("one", rules=[{"blame": "client", "status": [418]}])
    ) == (ConfigChanges(changed=("rules",)))


def test_a_changed_key_is_reported_without_its_value() -> None:
    changes = compare_configs(
        config("one", secret="first-4471"), config("one", secret="second-4471")
    )
    assert changes == ConfigChanges(changed=("account a/one",))
    assert str(changes) == "changed account a/one"


def test_no_changes() -> None:
    assert compare_configs(config("one"), config("one")) == ConfigChanges()
    assert str(ConfigChanges()) == ""


def test_fixed_settings() -> None:
    old = config(server={"port": 7000, "cors": ["http://a.test"]}, state_dir="one")
    server = {"port": 7001, "host": "::1", "max_body": 5, "drain_timeout": 3}
    new, fixed = keep_fixed_settings(config(server=server, state_dir="two"), old)
    assert fixed == ("server.host", "server.port", "server.max_body", "server.cors", "state_dir")
    assert new.server == old.server.model_copy(update={"drain_timeout": 3.0})
    assert new.state_dir == old.state_dir
    assert keep_fixed_settings(old, old) == (old, ())
