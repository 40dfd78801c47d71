"""The names of dropped fields, in the log and in headers."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.errors import UnsupportedField
from gateway.server.http.headers import check_strict
from gateway.server.record.exchange import format_dropped


def test_names_are_sorted() -> None:
    assert format_dropped({"top_k", "seed"}) == "seed, top_k"


def test_unprintable_characters_and_long_names() -> None:
    names = {"x\r\nset-cookie: a=1", "naïve", "a,b", "c" * 100}
    assert format_dropped(names) == f"a?b, {'c' * 64}, na?ve, x??set-cookie:?a=1"


def test_many_names_are_cut() -> None:
    text = format_dropped({f"field_{number:04}" for number in range(1000)})
    assert len(text) < 1000
    assert text.endswith("field_0031, ...")


@pytest.mark.parametrize("value", ["1", "true", " True "])
def test_a_strict_client_gets_an_error(value: str) -> None:
    request = make_mocked_request("POST", "/", headers={"X-Gateway-Strict": value})
    check_strict(request, frozenset())
    with pytest.raises(UnsupportedField) as raised:
        check_strict(request, {"top_k", "seed"})
    error = raised.value
    assert (error.status, error.code, error.param) == (400, "convert_request_failed", "seed, top_k")
    assert error.message == (
        "seed, top_k: would be lost on the way to the model's upstream, which x-gateway-strict "
        "forbids"
    )


@pytest.mark.parametrize("value", [None, "", "0", "false", "no"])
def test_other_clients_do_not(value: str | None) -> None:
    headers = {} if value is None else {"x-gateway-strict": value}
    check_strict(make_mocked_request("POST", "/", headers=headers), {"top_k"})
