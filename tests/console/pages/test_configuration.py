"""The configuration file in the console: no secret on a page, nothing written that was not shown,
nothing lost."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

from gateway.store.records import Role
from tests.admin.config_follower import ConfigFollower, follow_config, messages_channel, write
from tests.console.visitor import VisitedPage, Visitor, signed_in_visitor
from tests.resilience.faults.upstream import fault_upstream

PATH = "/console/configuration"
KEY = "inline-secret-1"
FILE = """\
# by hand
state_dir: {state}
server: {{port: 0, drain_timeout: 1}}
channels:
  - name: main   # first
    format: messages
    base_url: {url}
    models: [alpha-sonnet-4-6]
    accounts: [{{name: one, key: {key}}}]

  # the second
  - name: second
    format: messages
    base_url: {url}
    models: [alpha-sonnet-4-6]
    accounts: [{{name: two, key: "${{GATEWAY_TEST_KEY}}"}}]
"""


@dataclass(frozen=True, slots=True)
class Editing:
    """An admin with the page, and the gateway whose file it is."""

    it: ConfigFollower
    visitor: Visitor

    async def open(self, section: str = "") -> dict[str, str]:
        page = await self.visitor.get(f"{PATH}?section={section}")
        assert page.status == 200, page.text
        return fields(page)

    async def send(self, form: dict[str, str], **changes: str) -> VisitedPage:
        """As browsers do: lines end with CR LF."""
        form = form | changes
        form["text"] = form["text"].replace("\n", "\r\n")
        page = await self.visitor.post(PATH, **form)
        assert KEY not in page.html
        return page

    async def write(self, form: dict[str, str]) -> VisitedPage:
        """Sends a text, and what was shown of it once more."""
        return await self.send(fields(await self.send(form)))

    @property
    def text(self) -> str:
        return self.it.file.read_text()


def fields(page: VisitedPage) -> dict[str, str]:
    """The fields of the editor's form."""
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.html))
    match = re.search(r'<textarea id="text"[^>]*>\n(.*?)</textarea>', page.html, re.DOTALL)
    assert match is not None
    return hidden | {"text": unescape(match[1])}


@pytest.fixture
async def editing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Editing]:
    monkeypatch.setenv("GATEWAY_TEST_KEY", "two")
    async with (
        fault_upstream() as upstream,
        follow_config(tmp_path, messages_channel(upstream, "one")) as it,
        signed_in_visitor(it.gateway) as visitor,
    ):
        url = str(messages_channel(upstream, "one")["base_url"])
        write(it.file, FILE.format(state=tmp_path / "state", url=url, key=KEY))
        await it.reloader.reload()
        yield Editing(it, visitor)


async def test_a_change_is_shown_then_written_and_reloaded(editing: Editing) -> None:
    before = editing.text
    form = await editing.open()
    assert "key: <secret 1>" in form["text"]
    form["text"] = form["text"].replace("drain_timeout: 1", "drain_timeout: 2")
    shown = await editing.send(form)
    assert "+server: {port: 0, drain_timeout: 2}" in shown.text
    assert editing.text == before
    written = await editing.send(fields(shown))
    assert "is active: changed server." in written.text
    assert editing.text == before.replace("drain_timeout: 1", "drain_timeout: 2")
    assert editing.it.runtime.config.server.drain_timeout == 2


async def test_a_channel_is_edited_alone_and_all_else_stays(editing: Editing) -> None:
    before = editing.text
    form = await editing.open("channels/main")
    assert form["text"].startswith("  - name: main   # first\n")
    assert form["text"].endswith("key: <secret 1>}]\n")
    form["text"] += "    priority: 2\n"
    await editing.write(form)
    key = f"key: {KEY}}}]\n"
    assert editing.text == before.replace(key, f"{key}    priority: 2\n")


async def test_another_text_than_the_one_shown_is_shown_first(editing: Editing) -> None:
    before = editing.text
    form = await editing.open()
    form["text"] = form["text"].replace("drain_timeout: 1", "drain_timeout: 2")
    shown = fields(await editing.send(form))
    other = await editing.send(shown, text=shown["text"].replace("by hand", "by mouse"))
    assert "+# by mouse" in other.text
    assert editing.text == before


async def test_errors_are_those_of_check_and_keep_the_text(editing: Editing) -> None:
    before = editing.text
    form = await editing.open()
    form["text"] = form["text"].replace("format: messages", "formt: messages", 1)
    page = await editing.send(form)
    assert page.status == 422
    assert "channels[0].formt: unknown key; did you mean format?" in page.text
    assert "formt: messages" in fields(page)["text"]
    for broken in ("a: [", "channels: []\n"):
        page = await editing.send(form, text=broken)
        if page.status == 200:  # valid, but not for a gateway that serves channels
            page = await editing.send(fields(page))
        assert page.status == 422
    assert editing.text == before


async def test_a_file_that_has_changed_meanwhile_is_not_overwritten(editing: Editing) -> None:
    form = await editing.open()
    shown = fields(await editing.send(form, text=form["text"].replace("by hand", "by mouse")))
    write(editing.it.file, editing.text + "# another admin\n")
    for sent in (form | {"text": "# mine\n"}, shown):
        page = await editing.send(sent)
        assert page.status == 422
        assert "The file has changed since this page was opened" in page.text
    assert editing.text.endswith("# another admin\n")


async def test_a_new_secret_is_stored_apart_and_never_shown(editing: Editing) -> None:
    form = await editing.open()
    page = await editing.send(form, text=form["text"].replace("<secret 1>", "sk-new-secret-123"))
    assert page.status == 422
    assert "has a new secret" in page.text
    assert "sk-new-secret-123" not in page.html
    assert (await editing.send(form, text=form["text"].replace("ret 1>", "ret 9>"))).status == 422

    page = await editing.visitor.post(f"{PATH}/secrets", name="one", secret="sk-new-secret-123")
    assert "sk-new-secret-123" not in page.html
    stored = editing.it.file.parent / "state" / "secrets" / "one"
    assert f"file:{stored}" in page.text
    assert stored.stat().st_mode & 0o777 == 0o600
    form["text"] = form["text"].replace("<secret 1>", f"file:{stored}")
    await editing.write(form)
    (account,) = editing.it.runtime.config.channels[0].accounts
    assert account.static_key == "sk-new-secret-123"
    audit = await editing.visitor.get("/console/audit")
    assert "config.secret one" in audit.text
    assert "sk-new-secret-123" not in audit.html


@pytest.mark.parametrize(
    ("name", "secret"), [("../up", "abcdefgh"), ("", "a"), ("a", "with space")]
)
async def test_what_cannot_be_stored_is_refused(editing: Editing, name: str, secret: str) -> None:
    page = await editing.visitor.post(f"{PATH}/secrets", name=name, secret=secret)
    assert page.status in (200, 422)
    assert 'class="error"' in page.html
    assert not (editing.it.file.parent / "state" / "secrets").exists()


async def test_a_snapshot_is_restored(editing: Editing) -> None:
    before = editing.text
    form = await editing.open()
    await editing.write(form | {"text": form["text"].replace("by hand", "by mouse")})
    history = await editing.visitor.get(f"{PATH}/history")
    assert re.search(r"3 .* edit admin: admin only the text", history.text)
    page = await editing.visitor.get(f"{PATH}/history/2")
    assert "-# by mouse" in page.text
    version = re.search(r'name="version" value="(\w+)"', page.html)
    assert version is not None
    stale = await editing.visitor.post(f"{PATH}/history/2", version="0")
    assert "The file has changed" in stale.text
    done = await editing.visitor.post(f"{PATH}/history/2", version=version[1])
    assert "Snapshot 2 is restored." in done.text
    assert editing.text == before
    audit = (await editing.visitor.get("/console/audit")).text
    for action in ("config.edit the whole file", "config.rollback snapshot 2"):
        assert action in audit
    assert (await editing.visitor.get(f"{PATH}/history/77")).status == 404


async def test_a_broken_file_is_not_shown_but_can_be_replaced(editing: Editing) -> None:
    write(editing.it.file, f"metrics: {{token: {KEY}\n")
    page = await editing.visitor.get(PATH)
    assert page.status == 422
    assert "not YAML" in page.text
    assert KEY not in page.html
    page = await editing.visitor.get(f"{PATH}/history/2")
    version = re.search(r'name="version" value="(\w+)"', page.html)
    assert version is not None
    await editing.visitor.post(f"{PATH}/history/2", version=version[1])
    assert "# by hand" in editing.text


async def test_a_file_that_cannot_be_written_says_so(
    editing: Editing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere."""
    monkeypatch.setattr("os.access", lambda *_: False)
    page = await editing.visitor.get(PATH)
    assert "The gateway cannot write this file" in page.text
    form = fields(page)
    shown = await editing.send(form, text=form["text"].replace("by hand", "by mouse"))
    assert "Write and reload" not in shown.text


async def test_only_admins_see_it(editing: Editing) -> None:
    access = editing.it.gateway.daemon.console.access
    await access.admins.add("op", Role.OPERATOR, "correct horse battery")
    await editing.visitor.post("/console/sign-out")
    await editing.visitor.post(
        "/console/sign-in", username="op", password="correct horse battery", next="/console"
    )
    for path in (PATH, f"{PATH}/history", f"{PATH}/history/1"):
        assert (await editing.visitor.get(path)).status == 403
    assert (await editing.visitor.post(PATH, text="a", version="b", section="")).status == 403
