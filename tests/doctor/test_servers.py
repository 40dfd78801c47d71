"""What the doctor says of a database server and of shared state."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from gateway.doctor.findings import State
from gateway.doctor.servers import check_servers
from tests.support.databases import run_apart
from tests.support.postgres import (
    drop_database,
    empty_database,
    new_database_url,
    postgres_server,
)
from tests.support.valkey import ValkeyServer, valkey_server

SECRET = "s3cret-4471"


def config(folder: Path, **options: str) -> Path:
    file = folder / "channels.yaml"
    file.write_text("".join(f"{name}: {value}\n" for name, value in options.items()))
    file.chmod(0o600)
    return file


@pytest.mark.slow("starts both servers")
def test_both_servers_are_fine(tmp_path: Path) -> None:
    url = run_apart(new_database_url())
    file = config(tmp_path, database=url, shared=valkey_server().url)
    findings, is_on_server = check_servers(file)
    run_apart(drop_database(postgres_server(), url.rpartition("/")[2]))
    assert is_on_server
    assert {each.state for each in findings} == {State.OK}, findings
    version, schema, shared = (each.text for each in findings)
    assert version.startswith("PostgreSQL ")
    assert schema.isdecimal()
    assert "evicts nothing" in shared


def test_an_empty_database_is_not_migrated(tmp_path: Path) -> None:
    server = postgres_server()
    name = run_apart(empty_database(server))
    file = config(tmp_path, database=server.url(name))
    for _ in range(2):
        findings, _ = check_servers(file)
        assert findings[1].text.startswith("0: the next start migrates to ")
    run_apart(drop_database(server, name))


def test_servers_that_are_not_there(tmp_path: Path) -> None:
    url = f"postgresql://gw:{SECRET}@127.0.0.1:1/gateway"
    findings, _ = check_servers(config(tmp_path, database=url, shared="valkey://127.0.0.1:1"))
    assert [each.state for each in findings] == [State.PROBLEM] * 2
    assert "the connection was refused" in findings[0].text
    assert SECRET not in repr(findings)


def test_a_policy_that_evicts(tmp_path: Path) -> None:
    url = run_apart(new_database_url())
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder), "--maxmemory-policy", "allkeys-lru")
        try:
            *_, shared = check_servers(config(tmp_path, database=url, shared=server.url))[0]
        finally:
            server.stop()
    run_apart(drop_database(postgres_server(), url.rpartition("/")[2]))
    assert (shared.state, "noeviction" in shared.text) == (State.PROBLEM, True)


def test_without_servers_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert check_servers(config(tmp_path, state_dir="var")) == ([], False)
    assert check_servers(None) == ([], False)
