"""Accounts that were disabled by hand: over restarts, reloads, and a configuration without them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.routing.circuit_breaker import HealthState
from gateway.store.errors import StoreError
from gateway.store.settings import load_secret
from tests.support.gateway import ACCOUNT, RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream

REF = ("chat-main", ACCOUNT)


def state_of(gateway: RunningGateway) -> tuple[HealthState, str | None]:
    (view,) = gateway.daemon.console.accounts.states(REF)
    assert (view.disabled_at is None) is (view.disabled_by is None)
    return view.state, view.disabled_by


async def test_a_disabled_account_stays_so_over_restarts(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    lines = channels(upstream.address)
    async with run_gateway(tmp_path, lines) as gateway:
        accounts = gateway.daemon.console.accounts
        await accounts.disable(REF)
        first = accounts.states(REF)[0].disabled_at
        await accounts.disable(REF)
        assert accounts.states(REF)[0].disabled_at == first, "the first time counts"
    async with run_gateway(tmp_path, lines) as gateway:
        assert state_of(gateway) == (HealthState.DISABLED, "gateway")
        assert gateway.daemon.console.accounts.states(REF)[0].disabled_at == first
        gateway.daemon.console.accounts.reset(REF)
        assert state_of(gateway)[0] is HealthState.DISABLED
        await gateway.daemon.console.accounts.enable(REF)
        assert state_of(gateway) == (HealthState.HEALTHY, None)
    async with run_gateway(tmp_path, lines) as gateway:
        assert state_of(gateway) == (HealthState.HEALTHY, None)


async def test_an_account_that_comes_back_is_still_disabled(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    lines = channels(upstream.address)
    async with run_gateway(tmp_path, lines) as gateway:
        runtime = gateway.daemon.runtime
        await gateway.daemon.console.accounts.disable(REF)
        full = runtime.config
        without = [each for each in full.channels if each.name != REF[0]]
        runtime.replace_config(full.model_copy(update={"channels": tuple(without)}))
        runtime.replace_config(full)
        assert state_of(gateway)[0] is HealthState.DISABLED
    async with run_gateway(tmp_path, lines[1:]) as gateway:
        assert REF not in {(v.channel, v.account) for v in gateway.daemon.console.accounts.states()}
    async with run_gateway(tmp_path, lines) as gateway:
        assert state_of(gateway)[0] is HealthState.DISABLED


async def test_an_account_is_disabled_even_if_that_cannot_be_stored(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        database = gateway.operations.database

        async def full(work: object) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(database, "write", full)
            with pytest.raises(StoreError):
                await gateway.daemon.console.accounts.disable(REF)
        assert state_of(gateway) == (HealthState.DISABLED, None)
        await gateway.daemon.console.accounts.disable(REF)
        assert state_of(gateway) == (HealthState.DISABLED, "gateway")


async def test_a_secret_is_made_once(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    lines = channels(upstream.address)
    async with run_gateway(tmp_path, lines) as gateway:
        database = gateway.daemon.runtime.responses.database
        first, again = await asyncio.gather(*(load_secret(database, "a") for _ in range(2)))
        assert first == again and len(first) == 32
        assert await load_secret(database, "b") != first
    async with run_gateway(tmp_path, lines) as gateway:
        assert await load_secret(gateway.daemon.runtime.responses.database, "a") == first
