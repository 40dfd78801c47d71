"""Secrets: API keys and headers. Resolves references and rejects what cannot be a secret.

No error text contains a secret, nor anything that may be one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError

from gateway.config.file_errors import file_error_reason

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE: Final = "file:"
_KEY: Final = re.compile(r"[\x21-\x7e]+")  # a key is sent in a header: visible ASCII only
_MAX_KEY_BYTES: Final = 16 * 1024
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_SECRET_NAME: Final = re.compile(r"key|token|secret|auth|password|cookie", re.IGNORECASE)
_SAMPLE: Final = re.compile(
    r"your[-_ ]|[-_ ]here\b|change[-_ ]?me|placeholder|replace[-_ ]?(me|this)|\bexample\b"
    r"|\.\.\.|^<.*>$|^(sk-)?(x+|\*+|0+)$|^sk-?$",
    re.IGNORECASE,
)

NO_KEY: Final = "none"
"""The word in place of a reference if the upstream asks for no key."""

LITERAL_NOT_ALLOWED: Final = (
    "a literal key is accepted only in a file that only its owner can read (chmod 600), "
    "else write ${NAME} or file:/path"
)


@dataclass(frozen=True, slots=True)
class SecretResolver:
    """Resolves references; `allow_literals`: the file may contain secrets itself."""

    environ: Mapping[str, str]
    allow_literals: bool = True

    def resolve(self, text: str, *, plain: bool = False) -> str:
        """The value that `text` refers to; raises PydanticCustomError that names what is missing.
        Where `plain`, literal text is accepted in any file."""
        if variable := _VARIABLE.fullmatch(text):
            if not (value := self.environ.get(variable[1])):
                raise _error(f"the environment variable {variable[1]} is not set")
            return value
        if text.startswith(_FILE):
            return self._from_file(text.removeprefix(_FILE))
        if _is_reference(text):
            raise _error("a reference is the whole text ${NAME}: letters, digits and _")
        if not (plain or self.allow_literals):
            raise _error(LITERAL_NOT_ALLOWED)
        return text

    def _from_file(self, name: str) -> str:
        path = Path(name)
        if not path.is_absolute():
            directory = self.environ.get("CREDENTIALS_DIRECTORY")
            if not directory:
                raise _error("file: needs an absolute path where $CREDENTIALS_DIRECTORY is unset")
            path = Path(directory, name)
        try:
            with path.open("rb") as file:
                return file.read(_MAX_KEY_BYTES).decode("ascii", "replace").strip()
        except OSError as error:
            raise _error(f"cannot read {path}: {file_error_reason(error, path)}") from None
        except ValueError:  # a zero byte in the name
            raise _error("file: needs a path") from None


def resolve_key(reference: SecretStr, info: ValidationInfo) -> SecretStr:
    """The key itself where the context is a `SecretResolver`, "" for `none`; else the reference as
    written."""
    if not isinstance(info.context, SecretResolver):
        return reference
    if reference.get_secret_value() == NO_KEY:
        return SecretStr("")
    key = info.context.resolve(reference.get_secret_value())
    if not is_key(key):
        raise _error("the key is empty or has spaces or characters that no key has")
    if _SAMPLE.search(key):
        raise _error("this is a sample, not a key")
    return SecretStr(key)


def is_key(text: str) -> bool:
    """Whether a text can be a key that is sent in a header."""
    return _KEY.fullmatch(text) is not None and len(text) <= _MAX_KEY_BYTES


def resolve_header(reference: SecretStr, info: ValidationInfo) -> SecretStr:
    """The header value itself where the context is a `SecretResolver`; else as written."""
    text = value = reference.get_secret_value()
    if isinstance(info.context, SecretResolver):
        value = info.context.resolve(text, plain=True)
    if not _HEADER_VALUE.fullmatch(value):
        raise _error("the value is empty or has characters that no header has")
    if _is_reference(text) and _SAMPLE.search(value):
        raise _error("this is a sample, not a secret")
    return SecretStr(value)


def is_literal_secret(header: str, text: str) -> bool:
    """Whether a header with the name of a secret has its value in the file itself."""
    return is_secret_name(header) and not _is_reference(text)


def is_secret_name(header: str) -> bool:
    return _SECRET_NAME.search(header) is not None


def _is_reference(text: str) -> bool:
    """Tells whether a text is a reference, malformed ones included."""
    return text.startswith((_FILE, "$")) or "${" in text


def _error(text: str) -> PydanticCustomError:
    return PydanticCustomError("key", text)
