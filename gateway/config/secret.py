"""Secrets, which are keys and headers: where a reference leads, and what is never accepted.

It must not know who uses a secret. No text made here contains one, nor anything that may be one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE: Final = "file:"
_SENDABLE: Final = re.compile(r"[\x21-\x7e]+")  # a key travels in a header: visible ASCII only
_SAMPLE: Final = re.compile(
    r"your[-_ ]|[-_ ]here\b|change[-_ ]?me|placeholder|replace[-_ ]?(me|this)|\bexample\b"
    r"|\.\.\.|^<.*>$|^(sk-)?(x+|\*+|0+)$|^sk-?$",
    re.IGNORECASE,
)
_KEY_LIMIT: Final = 16 * 1024
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_TELLTALE: Final = re.compile(r"key|token|secret|auth|password|cookie", re.IGNORECASE)

IN_THE_OPEN: Final = (
    "a key itself may only stand in a file that nobody but its owner can read (chmod 600), "
    "else write ${NAME} or file:/path"
)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Where keys may be found: the environment, and whether the file itself keeps a secret."""

    environ: Mapping[str, str]
    literals: bool = True

    def find(self, written: str, *, plain: bool = False) -> str:
        """What `written` stands for; raises PydanticCustomError with a text that tells the
        operator what is missing. Where text may be `plain`, it stands for itself in any file."""
        if variable := _VARIABLE.fullmatch(written):
            return self._from_environment(variable[1])
        if written.startswith(_FILE):
            return self._from_file(written.removeprefix(_FILE))
        if _is_reference(written):
            raise _refusal("a reference is the whole text ${NAME}: letters, digits and _")
        if not (plain or self.literals):
            raise _refusal(IN_THE_OPEN)
        return written

    def _from_environment(self, name: str) -> str:
        if not (value := self.environ.get(name)):
            raise _refusal(f"the environment variable {name} is not set")
        return value

    def _from_file(self, name: str) -> str:
        path = Path(name)
        if not path.is_absolute():
            directory = self.environ.get("CREDENTIALS_DIRECTORY")
            if not directory:
                raise _refusal("file: needs an absolute path where $CREDENTIALS_DIRECTORY is unset")
            path = Path(directory, name)
        try:
            with path.open("rb") as file:
                return file.read(_KEY_LIMIT).decode("ascii", "replace").strip()
        except OSError as error:
            raise _refusal(f"cannot read {path}: {error.strerror}") from None
        except ValueError:  # a zero byte in the name
            raise _refusal("file: needs a path") from None


def resolve_key(written: SecretStr, info: ValidationInfo) -> SecretStr:
    """The key itself where the context brings `Secrets`; without, the reference as written."""
    if not isinstance(info.context, Secrets):
        return written
    key = info.context.find(written.get_secret_value())
    if not _SENDABLE.fullmatch(key):
        raise _refusal("the key is empty or has spaces or characters that no key has")
    if _SAMPLE.search(key):
        raise _refusal("this is a sample, not a key")
    return SecretStr(key)


def resolve_header(written: SecretStr, info: ValidationInfo) -> SecretStr:
    """The header's value itself where the context brings `Secrets`; else as it is written."""
    text = value = written.get_secret_value()
    if isinstance(info.context, Secrets):
        value = info.context.find(text, plain=True)
    if not _HEADER_VALUE.fullmatch(value):
        raise _refusal("the value is empty or has characters that no header has")
    if _is_reference(text) and _SAMPLE.search(value):
        raise _refusal("this is a sample, not a secret")
    return SecretStr(value)


def is_bare_secret(header: str, written: str) -> bool:
    """Whether a header that sounds like a secret has its value in the file itself."""
    return _TELLTALE.search(header) is not None and not _is_reference(written)


def _is_reference(written: str) -> bool:
    """Also one that is wrong."""
    return written.startswith((_FILE, "$")) or "${" in written


def _refusal(text: str) -> PydanticCustomError:
    return PydanticCustomError("key", text)
