"""Seals summaries for clients to keep: only this installation can read and make them.

Encryption is deterministic (AES-SIV, RFC 5297): equal texts have equal seals, so that prompts stay
the same.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import web

from gateway.errors import ServiceUnavailable
from gateway.runtime import Runtime
from gateway.store.errors import StoreError
from gateway.store.settings import load_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

_SETTING: Final = "compaction_key"
"""The name of the installation's secret in the database."""
_OF_ALL: Final = b"\1"
_OF_OTHERS: Final = b"\0"


class Summary(NamedTuple):
    """`covers_all`: the items before it are in it, whether the client still sends them or not."""

    text: str
    covers_all: bool = False


class Sealer:
    """Seals and opens summaries with the installation's secret. What it has sealed begins with the
    secret's fingerprint: an upstream may be a gateway, too."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = _cipher(blake2b(b"cipher", key=secret).digest())
        self._prefix = f"gwc1.{blake2b(b'name', key=secret, digest_size=6).hexdigest()}."

    def seal(self, summary: Summary) -> str:
        flag = _OF_ALL if summary.covers_all else _OF_OTHERS
        plain = flag + summary.text.encode(errors="surrogatepass")
        return self._prefix + urlsafe_b64encode(self._cipher.encrypt(plain, None)).decode()

    def is_own(self, text: object) -> bool:
        """Tells whether the installation has sealed it, and maybe somebody changed it."""
        return isinstance(text, str) and text.startswith(self._prefix)

    def open(self, sealed: str) -> Summary | None:
        """The summary; None where it was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            data = b64decode(sealed.removeprefix(self._prefix), altchars=b"-_", validate=True)
            plain = self._cipher.decrypt(data, None)
        except (ValueError, InvalidTag):
            return None
        return Summary(plain[1:].decode(errors="surrogatepass"), plain[:1] == _OF_ALL)


def _cipher(key: bytes) -> AESSIV:
    """Imported at first use: few requests have compactions, and a start should be quick."""
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    return AESSIV(key)


class Seals:
    """The sealer of the installation, whose secret is read on first use."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.responses.database
        self._sealer: Sealer | None = None

    async def sealer(self) -> Sealer:
        """Raises `ServiceUnavailable`."""
        if self._sealer is None:
            try:
                self._sealer = Sealer(await load_secret(self._database, _SETTING))
            except StoreError as error:
                raise ServiceUnavailable(detail=str(error)) from None
        return self._sealer


SEALS: Final = web.AppKey("compaction_seals", Seals)
