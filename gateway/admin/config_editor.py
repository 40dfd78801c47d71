"""Changes of the configuration file by admins: of its text, so that comments and order stay.

Admins see masks in place of secrets. What they send is revealed, validated as `gateway check` does,
written at once, and reloaded; if the gateway refuses it, the file is what it was.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from gateway.admin.access.audit import Audit
from gateway.admin.access.permissions import current_actor
from gateway.admin.config_file import why_read_only, write_config, write_error, write_file
from gateway.admin.config_history import ConfigHistory, digest, unified_diff
from gateway.admin.errors import (
    FieldError,
    FileChanged,
    FileNotWritable,
    FormError,
    NewSecret,
    ReloadUnavailable,
    UnknownSection,
)
from gateway.admin.reload import Reloader, ReloadResult
from gateway.config.document import ConfigError, compose, decode
from gateway.config.locate import read_file
from gateway.config.masking import SecretMask
from gateway.config.secrets import is_key
from gateway.runtime import unix_microseconds

SECRETS: Final = "secrets"
"""The folder of stored secrets in the state directory."""

_SECTIONS: Final = {"channels": "name", "models": "id"}
"""List → the option by which its items are called."""
_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class OpenFile:
    """The text that an admin edits: the whole file, or the lines of a `section` such as
    `channels/chat-main` from `line` on. `version` is that of the whole file."""

    file: str
    text: str
    version: str
    line: int
    sections: tuple[str, ...]
    read_only: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A valid text, and what it would change, without secrets."""

    content: bytes
    diff: str


class ConfigEditor:
    """Of one gateway. Raises ReloadUnavailable if that has no file which it can write."""

    def __init__(self, reloader: Reloader | None, audit: Audit, state_dir: Path) -> None:
        if reloader is None or reloader.file is None:
            raise ReloadUnavailable
        if reloader.history is None or reloader.source.check is None:
            raise ReloadUnavailable
        self._reloader = reloader
        self._audit = audit
        self._state_dir = state_dir.absolute()
        self._file = Path(reloader.file)
        self._check = reloader.source.check
        self.history: ConfigHistory = reloader.history

    def open(self, section: str = "") -> OpenFile:
        """Blocks. Raises ConfigError if the file is not YAML, UnknownSection."""
        content = read_file(self._file)[0]
        masked = SecretMask().hide(decode(content, str(self._file)), str(self._file))
        lines = masked.splitlines(keepends=True)
        places = _section_lines(masked)
        start, end = _place(places, section, len(lines))
        return OpenFile(
            str(self._file),
            "".join(lines[start:end]),
            digest(content),
            start + 1,
            tuple(places),
            why_read_only(self._file),
        )

    def preview(self, section: str, text: str, version: str) -> Change:
        """Blocks. Raises ConfigError, FileChanged, NewSecret, UnknownSection."""
        before, mask = read_file(self._file)[0], SecretMask()
        if digest(before) != version:
            raise FileChanged
        old = mask.hide(decode(before, str(self._file)), str(self._file))
        lines = old.splitlines(keepends=True)
        start, end = _place(_section_lines(old), section, len(lines))
        text = text.replace("\r\n", "\n").removesuffix("\n") + "\n"  # forms send CR LF
        if "\r\n" in old:
            text = text.replace("\n", "\r\n")
        revealed = mask.reveal("".join((*lines[:start], text, *lines[end:])))
        self._refuse_new_secrets(mask, revealed)
        content, name = revealed.encode(), str(self._file)
        self._check(content)
        return Change(content, unified_diff(old, mask.hide(revealed, name), name, "edited"))

    def preview_rollback(self, number: int) -> tuple[Change, str]:
        """What a snapshot would change, and the version of the file. Blocks. Raises ConfigError,
        UnknownSnapshot. Where the file is not YAML, all of the snapshot is shown."""
        mask, name = SecretMask(), f"snapshot {number}"
        content, now = self.history.read(number), read_file(self._file)[0]
        new, old, file = mask.hide(decode(content, name), name), "", str(self._file)
        with suppress(ConfigError):
            old = mask.hide(decode(now, file), file)
        return Change(content, unified_diff(old, new, file, name)), digest(now)

    async def apply(self, change: Change, version: str, action: str, target: str) -> ReloadResult:
        """Writes the file and reloads it. Raises ConfigError, FileChanged, FileNotWritable: then
        the file is what it was."""
        async with self._reloader.editing:
            before = await asyncio.to_thread(self._replace, change.content, version)
            try:
                result = await self._reloader.reload("edit")
            except BaseException:
                await asyncio.to_thread(write_config, self._file, before)
                raise
        await self._audit.record(action, target, after={"changes": str(result.changes)})
        return result

    async def store_secret(self, name: str, secret: str) -> str:
        """Stores a secret in a file of mode 600, also in place of an earlier one, and returns the
        reference to it. Raises FormError."""
        if not _SECRET_NAME.fullmatch(name):
            raise FormError(FieldError(("name",), "letters, digits, '.', '-' and '_' are allowed"))
        if not is_key(secret):
            text = "it is empty, or has spaces or characters that no key has"
            raise FormError(FieldError(("secret",), text))
        path = self._state_dir / SECRETS / name
        await asyncio.to_thread(self._write_secret, path, secret.encode())
        await self._audit.record("config.secret", name)
        return f"file:{path}"

    def _write_secret(self, path: Path, secret: bytes) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_file(path, secret, self._state_dir.stat(), 0o600)

    def _replace(self, content: bytes, version: str) -> bytes:
        """Returns what was in the file, which the history keeps too."""
        before, file = read_file(self._file)[0], str(self._file)
        if digest(before) != version:
            raise FileChanged
        actor = current_actor().name
        try:
            self.history.add(before, file, at=unix_microseconds(), actor=actor, cause="found")
            write_config(self._file, content)
        except OSError as error:
            raise FileNotWritable(write_error(error, self._file)) from None
        return before

    def _refuse_new_secrets(self, mask: SecretMask, revealed: str) -> None:
        """Raises NewSecret. What is masked already may also be written to other places."""
        known = len(mask.known())
        hidden = mask.hide(revealed, str(self._file), unknown=False)
        if new := list(mask.known().items())[known:]:
            first = min(hidden.find(each) for _, each in new)
            raise NewSecret(hidden[:first].count("\n") + 1, [secret for secret, _ in new])


def _place(places: dict[str, tuple[int, int]], section: str, count: int) -> tuple[int, int]:
    if not section:
        return 0, count
    if section not in places:
        raise UnknownSection(section)
    return places[section]


def _section_lines(text: str) -> dict[str, tuple[int, int]]:
    """Section → its first line from 0, and the line after it; only of those on lines of their
    own. Comments before an item belong to the item before it only if they are indented like its
    options."""
    root = compose(text, "")
    places: dict[str, tuple[int, int]] = {}
    if not isinstance(root, yaml.MappingNode):
        return places
    lines = text.splitlines()
    for key, value in root.value:
        option = _SECTIONS.get(key.value)
        if option is None or not isinstance(value, yaml.SequenceNode) or value.flow_style:
            continue
        for item in value.value:
            if isinstance(item, yaml.MappingNode) and (name := _option(item, option)):
                end = max(item.end_mark.line, item.start_mark.line + 1)
                while end > item.start_mark.line + 1 and _is_apart(lines, end, item):
                    end -= 1
                places[f"{key.value}/{name}"] = item.start_mark.line, end
    return places


def _is_apart(lines: list[str], end: int, item: yaml.MappingNode) -> bool:
    """Whether the line before `end` does not belong to the item: it is empty, or a comment that is
    indented less than the item's options."""
    line = lines[end - 1] if end <= len(lines) else ""
    text = line.lstrip()
    indent = len(line) - len(text)
    return not text or (text.startswith("#") and indent < item.start_mark.column)


def _option(item: yaml.MappingNode, name: str) -> str | None:
    return next((value.value for key, value in item.value if key.value == name), None)
