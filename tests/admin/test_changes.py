"""What a new configuration changes, by name."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.admin.changes import Changes, changes, settled
from gateway.config import Config, parse_config


def config(*accounts: str, secret: str = "abc-1", **fields: Any) -> Config:
    named = [{"name": account, "key": secret} for account in accounts]
    channel = {"name": "a", "format": "chat", "base_url": "http://127.0.0.1:1/v1"}
    channel |= {"models": ["beta-5.4"], "accounts": named}
    text = orjson.dumps({"channels": [channel] if accounts else []} | fields).decode()
    return parse_config(text)


def test_everything_by_name() -> None:
    assert changes(config("one", "two"), config("two", "three")) == Changes(
        added=("account a/three",), removed=("account a/one",)
    )
    assert changes(config(), config("one")).added == ("channel a", "account a/one")
    models = [{"id": "beta-x", "family": "beta"}]
    assert changes(config(), config(models=models)).added == ("model beta-x",)
    changed = [{"id": "beta-x", "family": "beta", "context": 7}]
    assert changes(config(models=models), config(models=changed)).changed == ("model beta-x",)
    assert changes(config("one"), config("one", rules=[{"blame": "client", "status": [418]}])) == (
        Changes(changed=("rules",))
    )


def test_a_key_is_a_change_and_never_told() -> None:
    told = changes(config("one", secret="first-4471"), config("one", secret="second-4471"))
    assert told == Changes(changed=("account a/one",))
    assert str(told) == "changed account a/one"


def test_nothing() -> None:
    assert changes(config("one"), config("one")) == Changes()
    assert str(Changes()) == ""


def test_what_counts_until_the_end() -> None:
    old = config(server={"port": 7000, "cors": ["http://a.test"]}, state_dir="one")
    server = {"port": 7001, "host": "::1", "max_body": 5, "drain_timeout": 3}
    new, fixed = settled(config(server=server, state_dir="two"), old)
    assert fixed == ("server.host", "server.port", "server.max_body", "server.cors", "state_dir")
    assert new.server == old.server.model_copy(update={"drain_timeout": 3.0})
    assert new.state_dir == old.state_dir
    assert settled(old, old) == (old, ())
