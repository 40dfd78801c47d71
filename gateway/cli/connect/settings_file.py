"""Puts settings into the file of a client, and takes them out again. What else is there stays."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.admin.client_settings import Content, toml_lines
from gateway.cli.errors import CommandRefused

_BLOCK: Final = b"# >>> gateway connect\n%s# <<< gateway connect\n"
_BLOCK_PATTERN: Final = re.compile(_BLOCK % b"(.*?)", re.DOTALL)
_MAX_SIZE: Final = 2**20
_LINES: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def write_settings(file: Path, content: Content) -> bool:
    """Returns whether that is a change. The backup has what was there without the settings, and is
    empty if that was no file."""
    backup, file = backup_of(file), Path(os.path.realpath(file))
    data, before = _read(file) or b"", _read(backup)
    changed = insert(file, content, data)
    if changed == data:
        return False
    if before is None or _remove(file, content, data, before) == data:
        _replace(backup, data, like=file)
    _replace(file, changed, like=file)
    return True


def undo_settings(file: Path, content: Content) -> bool:
    """Returns whether there was something to undo. The file becomes what it was, byte by byte; what
    else has changed in it since stays."""
    backup, file = backup_of(file), Path(os.path.realpath(file))
    data, before = _read(file), _read(backup)
    result = before if data is None else _remove(file, content, data, before)
    if before is None and result == data:
        return False
    if result == data != before:
        raise CommandRefused(f"{file} has none of the settings; what was there is in {backup}")
    if result:
        _replace(file, result, like=backup if data is None else file)
    else:
        file.unlink(missing_ok=True)
    backup.unlink(missing_ok=True)
    return True


def backup_of(file: Path) -> Path:
    """The backup, beside the file that a symbolic link leads to."""
    return Path(f"{os.path.realpath(file)}.before-gateway")


def insert(file: Path, content: Content, data: bytes = b"") -> bytes:
    """The file's data with the content; `data` itself if it has that."""
    if file.suffix == ".toml":
        return _insert_block(file, content, data)
    current = _parse(file, data)
    merged = dict(current)
    for name, each in content.items():
        merged[name] = each
        if isinstance(each, dict):
            if not isinstance(shared := current.get(name, {}), dict):
                raise CommandRefused(f"{file}: {name} is no object: paste the settings by hand")
            wanted = {key: setting for key, setting in each.items() if setting is not None}
            merged[name] = _swap(shared, wanted, each)
    return data if merged == current else orjson.dumps(merged, option=_LINES)


def _insert_block(file: Path, content: Content, data: bytes) -> bytes:
    """At the beginning: after the header of a table its keys would belong to that table."""
    rest = _without_block(content, data)
    outside = _parse(file, rest)
    for name, each in content.items():
        there = outside.get(name, {})
        is_shared = isinstance(each, dict) and isinstance(there, dict)
        if each.keys() & there.keys() if is_shared else name in outside:
            raise CommandRefused(f"{file} has another {name}: remove it, or paste by hand")
    block = _BLOCK % "".join(toml_lines(content)).encode()
    _parse(file, block + rest)
    return data if block in data else block + rest


def _without_block(content: Content, data: bytes) -> bytes:
    """Other lines within it stay: the client itself may have added them to the top level."""
    own = tuple(line.partition("=")[0].encode() for line in toml_lines(content))

    def others(block: re.Match[bytes]) -> bytes:
        return b"".join(line for line in block[1].splitlines(True) if not line.startswith(own))

    return _BLOCK_PATTERN.sub(others, data)


def _remove(file: Path, content: Content, data: bytes, before: bytes | None) -> bytes:
    """`data` itself if it has nothing to remove."""
    if file.suffix == ".toml":
        return _without_block(content, data)
    if before is None:
        return data
    current, old = _parse(file, data), _parse(file, before)
    restored = _swap(current, old, content)
    for name, each in content.items():
        shared, former = current.get(name), old.get(name, {})
        if isinstance(each, dict) and isinstance(shared, dict) and isinstance(former, dict):
            section = _swap(shared, former, each)
            restored |= {name: section} if section else {}
    if restored == old:
        return before
    return data if restored == current else orjson.dumps(restored, option=_LINES)


def _swap(current: Content, other: Content, names: Content) -> dict[str, Any]:
    """`current` with what `other` has under these names."""
    kept = {name: each for name, each in current.items() if name not in names}
    return kept | {name: each for name, each in other.items() if name in names}


def _parse(file: Path, data: bytes) -> dict[str, Any]:
    """Its errors do not repeat the text, which may have secrets."""
    is_toml = file.suffix == ".toml"
    try:
        content = tomllib.loads(data.decode()) if is_toml else orjson.loads(data or b"{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        kind = "TOML" if is_toml else "an object in JSON, without comments"
        raise CommandRefused(f"{file} is not {kind}: paste the settings by hand")
    return content


def _read(file: Path) -> bytes | None:
    """None if there is no such file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_SIZE:
        raise CommandRefused(f"{file} is not a file of at most 1 MiB")
    return file.read_bytes()


def _replace(file: Path, data: bytes, *, like: Path) -> None:
    """Replaces the file as a whole, with the mode of `like`; a new one is 0600."""
    mode = stat.S_IMODE(like.stat().st_mode) if like.exists() else 0o600
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.touch(0o600)
        temporary.write_bytes(data)
        temporary.chmod(mode)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
