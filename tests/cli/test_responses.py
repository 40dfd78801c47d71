"""`gateway responses`: tables, JSON, filters and errors."""

from __future__ import annotations

from gateway.store.records import StoredResponse
from tests.cli.cli_runner import AdminGateway, CommandRunner
from tests.store.sample_responses import stored_response, write_responses


def write(gateway: AdminGateway, *replies: StoredResponse) -> None:
    gateway.do(lambda: write_responses(gateway.database, *replies))


def test_lists(shell: CommandRunner, gateway: AdminGateway) -> None:
    key = shell.json("key", "mint", "--name", "alice")
    first = stored_response(1, key["id"])
    second = stored_response(2, key["id"], first)
    write(gateway, first, second, stored_response(3, "tok_gone"))
    lines = shell("responses", "list").stdout.splitlines()
    assert lines[0].split() == [
        *("ID", "Key", "Created", "Model", "Status", "Continues", "Bytes", "Expires")
    ]
    assert len(lines) == 4
    assert "tok_gone" in lines[1]
    assert "alice" in lines[2]
    assert first.id in lines[2]
    listed = shell.items("responses", "list", "--key", "alice")
    assert [each["id"] for each in listed] == [second.id, first.id]
    page = shell("responses", "list", "--limit", "1")
    assert page.stderr == f"Older ones: --before resp_{3:024x}\n"
    older = shell.items("responses", "list", "--before", second.id)
    assert [each["id"] for each in older] == [first.id]


def test_one_response(shell: CommandRunner, gateway: AdminGateway) -> None:
    first = stored_response(1)
    second = stored_response(2, previous=first)
    write(gateway, first, second)
    shown = shell("responses", "show", second.id)
    assert second.request_id in shown.stdout
    assert "Its chain, 2 responses:" in shown.stderr
    assert "input" not in shown.stdout
    shown = shell("responses", "show", second.id, "--texts")
    assert '{"input":"2"}' in shown.stdout
    assert [each["id"] for each in shell.json("responses", "show", first.id)["chain"]] == [
        *(first.id, second.id)
    ]


def test_deletion(shell: CommandRunner, gateway: AdminGateway) -> None:
    first = stored_response(1)
    write(gateway, first)
    assert shell("responses", "delete", first.id).stderr == f"Deleted response {first.id}.\n"
    assert shell.items("responses", "list") == []
    refused = shell("responses", "delete", first.id)
    assert f"There is no stored response {first.id}." in refused.stderr
