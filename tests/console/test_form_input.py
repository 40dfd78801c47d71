"""Texts of forms as settings of keys and groups, and back."""

from __future__ import annotations

import pytest

from gateway.admin.api.key_forms import (
    CreateGroupForm,
    CreateKeyForm,
    UpdateGroupForm,
    UpdateKeyForm,
)
from gateway.admin.errors import FormError
from gateway.console.form_input import (
    error_messages,
    group_to_texts,
    key_to_texts,
    parse_form,
    parse_overlap,
)
from gateway.core.limits import Limits
from gateway.store.records import Group, Token, TokenState, UserAgentMode

NOW = 1_790_000_000_000_000

TOKEN = Token(
    id="tok_1",
    name="alice",
    digest=b"",
    display="sk-a...b",
    group="default",
    state=TokenState.ACTIVE,
    created_at=NOW,
    note="laptop",
    expires_at=NOW + 123_456,
    probe=True,
    models=("beta-*", "family:alpha"),
    addresses=("10.0.0.0/8",),
    user_agents=("a, b", "re:c d"),
    trust=("end-user", "tag=x-team"),
    limits=Limits(
        requests_per_minute=600,
        tokens_per_minute=250_000,
        concurrent=0,
        budget=5 * 10**12,
        budget_day=500_000,
        budget_month=1_234_567_890_000,
        budget_5h=1_000_000,
        budget_week=2_500_000,
        budget_usd=50_000_000,
        budget_usd_5h=1_250_000,
        budget_usd_day=0,
        budget_usd_week=1,
        budget_usd_month=2_000_000_000,
    ),
)
GROUP = Group(
    "g",
    ("beta-*",),
    NOW,
    multiplier="0.5",
    user_agents=("x",),
    user_agent_mode=UserAgentMode.OBSERVE,
)


def test_texts_of_a_key_parse_to_its_settings() -> None:
    texts = key_to_texts(TOKEN)
    assert texts["budget"] == "5M"
    assert texts["budget_day"] == "0.5"
    assert texts["tokens_per_minute"] == "250k"
    assert texts["budget_month"] == "1234567.89"
    assert texts["concurrent"] == "0"
    assert (texts["budget_usd"], texts["budget_usd_5h"]) == ("50", "1.25")
    assert texts["budget_usd_month"] == "2k"
    settings = parse_form(CreateKeyForm, texts, {}, NOW).settings()
    assert settings.pop("expires_at") == NOW
    assert settings == {
        "note": TOKEN.note,
        "probe": True,
        "models": TOKEN.models,
        "addresses": TOKEN.addresses,
        "user_agents": TOKEN.user_agents,
        "trust": TOKEN.trust,
        "limits": {name: getattr(TOKEN.limits, name) for name in TOKEN.limits.__slots__},
    }


def test_unchanged_texts_set_no_fields() -> None:
    for form, displayed in (
        (UpdateKeyForm, key_to_texts(TOKEN)),
        (UpdateGroupForm, group_to_texts(GROUP)),
    ):
        as_browsers_send = {
            name: text.replace("\n", "\r\n") + ("\r\n" if "\n" in text else "")
            for name, text in displayed.items()
        }
        assert not parse_form(form, as_browsers_send, displayed, NOW).model_fields_set


def test_empty_texts_clear_fields() -> None:
    displayed = key_to_texts(TOKEN)
    empty = dict.fromkeys(displayed, "") | {"name": "alice", "group": "default"}
    changes = parse_form(UpdateKeyForm, empty, displayed, NOW).changes()
    assert changes == {
        "note": None,
        "expires_at": None,
        "probe": False,
        "models": None,
        "addresses": None,
        "user_agents": None,
        "trust": None,
        "limits": dict.fromkeys(TOKEN.limits.__slots__),
    }


@pytest.mark.parametrize("nothing", ["none", "never", " none "])
def test_none_and_never_clear_fields(nothing: str) -> None:
    form = parse_form(
        CreateKeyForm, {"name": "a", "expires_at": nothing, "budget": nothing}, {}, NOW
    )
    assert form.settings() == {"expires_at": None, "limits": {"budget": None}}


def test_every_invalid_field_is_reported() -> None:
    texts = {
        "name": "x" * 101,
        "models": "beta-* family:gamma",
        "budget": "lots",
        "expires_at": "tomorrow",
        "user_agents": "ok\nre:(",
    }
    with pytest.raises(FormError) as caught:
        parse_form(CreateKeyForm, texts, {}, NOW)
    messages = error_messages(caught.value)
    assert set(messages) == set(texts)
    assert messages["models"] == "Number 2: Must be family:alpha or family:beta."
    assert messages["user_agents"].startswith("Number 2: Is no regular expression")
    assert messages["budget"].startswith("Must be units such as 5M")


def test_a_group_needs_patterns_and_a_numeric_multiplier() -> None:
    with pytest.raises(FormError) as caught:
        parse_form(CreateGroupForm, {"name": "g", "multiplier": "much"}, {}, NOW)
    assert set(error_messages(caught.value)) == {"patterns", "multiplier"}
    with pytest.raises(FormError) as caught:
        parse_form(UpdateGroupForm, {"patterns": ""}, {"patterns": "beta-*"}, NOW)
    assert set(error_messages(caught.value)) == {"patterns"}


def test_settings_of_groups_are_invalid_for_keys() -> None:
    with pytest.raises(FormError):
        parse_form(CreateKeyForm, {"name": "a", "patterns": "*"}, {}, NOW)


def test_overlap() -> None:
    assert parse_overlap(" 24h ") == 86_400
    with pytest.raises(FormError):
        parse_overlap("")
