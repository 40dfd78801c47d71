"""Account keys: where a reference leads, and what is never accepted as a key.

It must not know who uses a key. No text made here contains a secret, nor anything that may be one.
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


@dataclass(frozen=True, slots=True)
class Secrets:
    """Where keys may be found: the environment, and whether the file itself keeps a secret."""

    environ: Mapping[str, str]
    literals: bool = True

    def find(self, written: str) -> str:
        """The key that `written` stands for; raises PydanticCustomError with a text that tells
        the operator what is missing."""
        if variable := _VARIABLE.fullmatch(written):
            return self._from_environment(variable[1])
        if written.startswith(_FILE):
            return self._from_file(written.removeprefix(_FILE))
        if written.startswith("$") or "${" in written:
            raise _refusal("a reference is the whole text ${NAME}: letters, digits and _")
        if not self.literals:
            raise _refusal(
                "a key itself may only stand in a file that nobody but its owner can read "
                "(chmod 600), else write ${NAME} or file:/path"
            )
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


def _refusal(text: str) -> PydanticCustomError:
    return PydanticCustomError("key", text)
