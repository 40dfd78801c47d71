"""What people see of a configuration file: no secret, and every byte comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.document import ConfigError
from gateway.config.load import parse_config
from gateway.config.masking import SecretMask, public_config

FILE = """\
# api_key: old-key-77, authorization: Basic b2xkOmJhc2lj
# the old key: sk-live-0000aaaa1111, and the new one twice: hunter22hunter22
database: postgresql://gateway:p4ss-word@db.example/gateway
metrics: {token: "metrics-secret-1"}
alerts:
  webhooks:
    - {name: o, url: https://hooks.example/T0/webhook-secret, headers: {x-auth: header-secret}}
channels:
  - name: chat-main   # Grüße
    format: chat
    base_url: https://chat.example/v1
    proxy: http://user:proxy-secret@proxy.example:3128  # was password: old-one
    models: [beta-5.4]
    headers: {x-team: team-header-value}
    accounts:
      - {name: a1, key: hunter22hunter22}
      - {name: a2, key: "${CHAT_KEY}"}
      - {name: a3, key: file:/run/key, kye: misspelt-secret}
      - name: a4
        key: >-
          folded-secret

  - name: next
    accounts: [{name: b, key: none}]
"""
SECRETS = (
    *(
        "sk-live-0000aaaa1111",
        "hunter22hunter22",
        "p4ss-word",
        "metrics-secret-1",
        "webhook-secret",
    ),
    *("header-secret", "proxy-secret", "team-header-value", "misspelt-secret", "folded-secret"),
    *("old-one", "old-key-77", "b2xkOmJhc2lj"),
)


def test_no_secret_is_shown_and_everything_else_is() -> None:
    mask = SecretMask()
    shown = mask.hide(FILE, "f")
    assert [each for each in SECRETS if each in shown] == []
    for plain in (
        "# Grüße",
        "${CHAT_KEY}",
        "file:/run/key",
        "key: none}",
        "https://chat.example/v1",
    ):
        assert plain in shown
    assert mask.reveal(shown) == FILE


def test_one_secret_has_one_mask_in_every_text() -> None:
    mask = SecretMask()
    first = mask.hide("channels: [{accounts: [{key: first-secret}]}]\n", "f")
    second = mask.hide("channels: [{accounts: [{key: second-secret}, {key: first-secret}]}]\n", "g")
    assert "key: <secret 1>" in first
    assert "[{key: <secret 2>}, {key: <secret 1>}]" in second


def test_a_mask_in_the_file_itself_stays_what_it_is() -> None:
    text = "# <secret 1>\nmetrics: {token: real-token-1}\n"
    mask = SecretMask()
    assert mask.reveal(mask.hide(text, "f")) == text


def test_what_is_no_yaml_is_not_shown() -> None:
    with pytest.raises(ConfigError) as error:
        SecretMask().hide("metrics: {token: real-token-1\n", "f")
    assert "real-token" not in str(error.value)


@given(
    st.lists(st.sampled_from([*SECRETS, "# key: ", "a: ", "<secret 2>", "'", "\n", " ", "é"])).map(
        "".join
    )
)
def test_every_byte_comes_back(text: str) -> None:
    mask = SecretMask()
    try:
        shown = mask.hide(text, "f")
    except ConfigError:
        return
    assert mask.reveal(shown) == text


def test_the_effective_configuration_has_no_secret() -> None:
    config = parse_config(
        "channels: [{name: a, format: chat, base_url: https://a.example/v1, models: [beta-5.4],"
        " accounts: [{name: a, key: key-of-a-1}]}]"
    )
    short, full = (str(public_config(config, with_defaults=each)) for each in (False, True))
    assert "key-of-a-1" not in full
    assert "https://a.example/v1" in short
    assert "drain_timeout" in full
    assert "drain_timeout" not in short
