"""Obtains credentials: from a command, an OAuth server, or by the libraries of platforms."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar

from gateway.config.file_errors import file_error_reason
from gateway.config.key_source import AwsSource, AzureSource, KeySource, OidcSource

TIMEOUT: Final = 30.0
"""Seconds for a command or an OAuth server."""

MAX_OUTPUT: Final = 64 * 1024
"""Bytes of what they answer, and of an identity token."""

_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_GRANTS: Final = {
    "token-exchange": ("subject_token", "urn:ietf:params:oauth:grant-type:token-exchange"),
    "jwt-bearer": ("assertion", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
}
_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
_MAX_REASON: Final = 300
_OK: Final = 200

Result = TypeVar("Result")


class AwsKeys(NamedTuple):
    access_key: str
    secret_key: str
    session_token: str | None


class Issued(NamedTuple):
    """`expires_at` is in Unix seconds, `expires_in` counts from now; None: it does not say."""

    value: str | AwsKeys
    expires_at: float | None = None
    expires_in: float | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        if isinstance(self.value, str):
            return (self.value,)
        return tuple(filter(None, self.value[1:]))


class IssueFailed(Exception):
    """There is no credential; the text says why."""


def issuer(source: KeySource) -> Callable[[], Awaitable[Issued]]:
    """Returns what obtains a new credential, and raises `IssueFailed` or what its library raises.
    Nothing of an earlier one is reused, so that what was rejected or has changed comes anew."""
    if (command := source.command) is not None:
        return lambda: _in_thread(lambda: _run(command))
    if (oidc := source.oidc) is not None:
        return lambda: _exchange(oidc)
    if (azure := source.azure) is not None:
        return lambda: _in_thread(lambda: _azure(azure))
    if (aws := source.aws) is not None:
        return lambda: _in_thread(lambda: _aws(aws))
    return lambda: _in_thread(_google)


def failure_reason(error: Exception) -> str:
    """One line of what a source or its library says."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_REASON else text[:_MAX_REASON] + "…"


async def _in_thread(function: Callable[[], Result]) -> Result:
    """Runs a function of a library in a thread of its own: it can take as long as it likes, also
    at the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not done.cancelled():
            outcome()

    def run() -> None:
        try:
            outcome = partial(done.set_result, function())
        except Exception as error:  # whatever a library raises is why there is no credential
            outcome = partial(done.set_exception, IssueFailed(failure_reason(error)))
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name="credential", daemon=True).start()
    return await done


def _library(name: str) -> Any:
    """Imports a module of a library, whose log says nothing of what goes well."""
    for logger in (name.partition(".")[0], "msal", "urllib3"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    return import_module(name)


def _google() -> Issued:
    auth = _library("google.auth")
    transport = _library("google.auth.transport.requests")
    credentials, _ = auth.default(scopes=[_GOOGLE_SCOPE])
    credentials.refresh(transport.Request())
    expiry: datetime | None = credentials.expiry
    return Issued(credentials.token, _timestamp(expiry and expiry.replace(tzinfo=UTC)))


def _azure(source: AzureSource) -> Issued:
    identity = _library("azure.identity")
    client, tenant = source.client_id, source.tenant_id
    given = {name: value for name, value in (("client_id", client), ("tenant_id", tenant)) if value}
    if source.identity == "workload":
        credential = identity.WorkloadIdentityCredential(**given)
    elif source.identity == "managed":
        credential = identity.ManagedIdentityCredential(client_id=client)
    else:
        credential = identity.DefaultAzureCredential(
            **({"managed_identity_client_id": client} if client else {}),
            **({"workload_identity_client_id": client} if client else {}),
            **({"workload_identity_tenant_id": tenant} if tenant else {}),
        )
    with credential:
        token = credential.get_token(source.scope)
    return Issued(token.token, float(token.expires_on))


def _aws(source: AwsSource) -> Issued:
    botocore = _library("botocore.credentials")
    session = _library("botocore.session").Session(profile=source.profile)
    credentials = session.get_credentials()
    if credentials is None:
        raise IssueFailed("no keys of AWS in environment, files, container or machine")
    if source.role is not None:

        def create_client(name: str, **options: Any) -> Any:
            region = source.region or session.get_config_variable("region") or "us-east-1"
            return session.create_client(name, region_name=region, **options)

        found = botocore.AssumeRoleCredentialFetcher(
            create_client, credentials, source.role, {"RoleSessionName": "model-gateway"}
        ).fetch_credentials()
        keys = AwsKeys(found["access_key"], found["secret_key"], found["token"])
        return Issued(keys, _timestamp(datetime.fromisoformat(found["expiry_time"])))
    frozen = credentials.get_frozen_credentials()
    keys = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token)
    return Issued(keys, _timestamp(getattr(credentials, "_expiry_time", None)))


def _run(command: tuple[str, ...]) -> Issued:
    """Runs a command in a process group of its own, which ends with it."""
    pipe, late = subprocess.PIPE, threading.Event()
    try:
        process = subprocess.Popen(  # noqa: S603  # the operator's own
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        reason = file_error_reason(error, Path(command[0]))
        raise IssueFailed(f"the command cannot be started: {reason}") from None

    def kill() -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def end() -> None:
        late.set()
        kill()

    timer = threading.Timer(TIMEOUT, end)
    timer.daemon = True
    with process:
        timer.start()
        try:
            output = process.stdout.read(MAX_OUTPUT) if process.stdout is not None else b""
            if is_too_long := len(output) == MAX_OUTPUT:
                kill()
            errors = process.stderr.read(MAX_OUTPUT) if process.stderr is not None else b""
            status = process.wait()
        finally:
            timer.cancel()
            kill()
    if late.is_set():
        raise IssueFailed(f"the command has not ended within {TIMEOUT:g} s")
    if is_too_long:
        raise IssueFailed(f"the command writes {MAX_OUTPUT} bytes or more")
    if status:
        said = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise IssueFailed(f"the command ended with status {status}: {said or 'without a word'}")
    return _parse(output, "the command")


async def _exchange(source: OidcSource) -> Issued:
    identity = await asyncio.to_thread(_read_identity, Path(source.token_file))
    field, grant = _GRANTS[source.grant]
    params = {"grant_type": grant, field: identity, "audience": source.audience}
    params |= {"scope": source.scope}
    if source.grant == "token-exchange":
        params["subject_token_type"] = _JWT
    sent = {name: value for name, value in params.items() if value} | dict(source.params)
    encoded: dict[str, Any] = {"json" if source.encoding == "json" else "data": sent}
    timeout, url = ClientTimeout(total=TIMEOUT), source.token_url
    try:
        async with (
            ClientSession(cookie_jar=DummyCookieJar(), timeout=timeout) as session,
            session.post(
                url, headers=dict(source.headers), allow_redirects=False, **encoded
            ) as answer,
        ):
            body = b""
            async for piece in answer.content.iter_chunked(MAX_OUTPUT):
                body += piece
                if len(body) > MAX_OUTPUT:
                    raise IssueFailed(f"the OAuth server answers more than {MAX_OUTPUT} bytes")
    except TimeoutError:
        raise IssueFailed(f"no answer of the OAuth server within {TIMEOUT:g} s") from None
    except (ClientError, OSError) as error:
        raise IssueFailed(f"the OAuth server cannot be asked: {failure_reason(error)}") from None
    if answer.status != _OK:
        raise IssueFailed(f"the OAuth server answers {answer.status}: {_oauth_error(body)}")
    return _parse(body, "the OAuth server")


def _read_identity(path: Path) -> str:
    try:
        with path.open("rb") as file:
            identity = file.read(MAX_OUTPUT).decode("ascii", "replace").strip()
    except OSError as error:
        raise IssueFailed(f"cannot read {path}: {file_error_reason(error, path)}") from None
    if not identity:
        raise IssueFailed(f"{path} is empty")
    return identity


def _oauth_error(body: bytes) -> str:
    """The fields that RFC 6749 has for errors; others may repeat the identity token."""
    fields = _object(body) or {}
    error = fields.get("error")
    named = fields if isinstance(error, str) else error if isinstance(error, dict) else {}
    texts = [named.get(name) for name in ("error", "type", "error_description", "message")]
    return ", ".join(text for text in texts if isinstance(text, str)) or "no reason"


def _parse(output: bytes, who: str) -> Issued:
    """A credential alone, or in JSON as OAuth and the commands of platforms write it."""
    fields = _object(output)
    if fields is None:
        value: object = output.decode("ascii", "replace").strip()
    else:
        names = ("access_token", "accessToken", "token")
        value = next((fields[name] for name in names if fields.get(name)), None)
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise IssueFailed(f"{who} gives no credential")
    if not value:
        raise IssueFailed(f"{who} gives an empty credential")
    for name in ("expires_in", "expires_on", "expires_at"):
        number = fields.get(name) if fields else None
        if isinstance(number, str) and number.isdecimal():
            number = int(number)
        if isinstance(number, int | float) and number > 0:
            return Issued(value, **{name.replace("_on", "_at"): float(number)})
    return Issued(value)


def _object(text: bytes) -> Mapping[str, Any] | None:
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def _timestamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
