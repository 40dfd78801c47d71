"""How losses are told, whatever they are called."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.errors import UnsupportedField
from gateway.server.exchange_record import format_dropped
from gateway.server.headers import check_strict, dropped_header


def test_nothing_lost_is_nothing_told() -> None:
    assert format_dropped(()) is None
    assert dropped_header(frozenset()) == {}


def test_names_in_order() -> None:
    assert dropped_header({"top_k", "seed"}) == {"x-gateway-dropped": "seed, top_k"}


def test_a_clients_own_field_may_be_called_anything() -> None:
    names = {"x\r\nset-cookie: a=1", "naïve", "a,b", "c" * 100}
    assert format_dropped(names) == f"a?b, {'c' * 64}, na?ve, x??set-cookie:?a=1"


def test_a_flood_of_names_is_cut() -> None:
    text = format_dropped({f"field_{number:04}" for number in range(1000)})
    assert text is not None
    assert len(text) < 1000
    assert text.endswith("field_0031, ...")


@pytest.mark.parametrize("said", ["1", "true", " True "])
def test_a_strict_client_loses_nothing(said: str) -> None:
    request = make_mocked_request("POST", "/", headers={"X-Gateway-Strict": said})
    check_strict(request, frozenset())
    with pytest.raises(UnsupportedField) as refused:
        check_strict(request, {"top_k", "seed"})
    error = refused.value
    assert (error.status, error.code, error.param) == (400, "convert_request_failed", "seed, top_k")
    assert error.message == (
        "seed, top_k: would be lost on the way to the model's upstream, which x-gateway-strict "
        "forbids"
    )


@pytest.mark.parametrize("said", [None, "", "0", "false", "no"])
def test_others_do(said: str | None) -> None:
    headers = {} if said is None else {"x-gateway-strict": said}
    check_strict(make_mocked_request("POST", "/", headers=headers), {"top_k"})
