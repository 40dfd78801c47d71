"""Credentials from commands, OAuth servers and the libraries of platforms, against loopback."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from google.auth.compute_engine import _metadata as metadata

from gateway.config.key_source import KeySource
from gateway.credentials import sources
from gateway.credentials.sources import AwsKeys, Issued, IssueFailed, issuer
from tests.credentials.issuer import run_issuer
from tests.support.upstream import Response, json_response
from tests.upstream.certificates import Authority, make_authority

_DENIED = (
    b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error>"
    b"</ErrorResponse>"
)
SH = ("/bin/sh", "-c")


def source_of(**fields: Any) -> KeySource:
    return KeySource.model_validate_json(orjson.dumps(fields))


async def issue(**fields: Any) -> Issued:
    return await issuer(source_of(**fields))()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("the-key", Issued("the-key")),
        ("the-key\n", Issued("the-key")),
        ('{"access_token": "a", "expires_in": 60}', Issued("a", None, 60.0)),
        ('{"accessToken": "a", "expires_on": 2000000000}', Issued("a", 2000000000.0)),
        ('{"token": "a", "expires_on": "2000000000"}', Issued("a", 2000000000.0)),
        ('{"token": "a", "expires_in": -1}', Issued("a")),
        ("", "gives an empty credential"),
        ("two words", "gives no credential"),
        ("two\nlines", "gives no credential"),
        ('{"error": "no"}', "gives no credential"),
    ],
)
async def test_what_a_command_writes(output: str, expected: Issued | str) -> None:
    running = issue(command=["/usr/bin/printf", "%s", output])
    if isinstance(expected, Issued):
        assert await running == expected
    else:
        with pytest.raises(IssueFailed, match=expected):
            await running


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/nowhere/at/all"], "cannot be started: No such file"),
        ([*SH, "echo key; echo first >&2; echo denied >&2; exit 3"], "status 3: denied"),
        ([*SH, "exit 4"], "status 4: without a word"),
        ([*SH, "cat /dev/zero"], "writes 65536 bytes or more"),
        ([*SH, "sleep 60 & sleep 60"], "has not ended within 0.2 s"),
    ],
)
async def test_a_command_that_fails(
    command: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "TIMEOUT", 0.2 if "sleep" in command[-1] else 10)
    with pytest.raises(IssueFailed, match=reason):
        await issue(command=command)


@pytest.mark.parametrize(
    ("grant", "encoding", "sent"),
    [
        (
            "token-exchange",
            "form",
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
                "subject_token": "identity",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            },
        ),
        (
            "jwt-bearer",
            "json",
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "assertion": "identity",
            },
        ),
    ],
)
async def test_an_exchange(tmp_path: Path, grant: str, encoding: str, sent: dict[str, str]) -> None:
    file = tmp_path / "identity"
    file.write_text("identity\n")
    async with run_issuer(lifetime=600) as server:
        fields = {
            **{"token_file": str(file), "token_url": f"{server.server.address}/oauth/token"},
            **{"grant": grant, "encoding": encoding, "audience": "gateway", "scope": "all"},
            **{"params": {"service_account_id": "sa"}, "headers": {"x-beta": "b"}},
        }
        assert await issue(oidc=fields) == Issued("issued-token-0001", None, 600.0)
        more = {"audience": "gateway", "scope": "all", "service_account_id": "sa"}
        assert server.calls == [sent | more]
        assert server.server.last_request.headers["x-beta"] == "b"
        error = {"error": "invalid_grant", "error_description": "too old", "assertion": "identity"}
        server.refuses = json_response(error, 400)
        with pytest.raises(IssueFailed) as failed:
            await issue(oidc=fields)
        assert str(failed.value) == "the OAuth server answers 400: invalid_grant, too old"
        file.write_text("")
        with pytest.raises(IssueFailed, match="is empty"):
            await issue(oidc=fields)
    with pytest.raises(IssueFailed, match="cannot be asked"):
        file.write_text("identity")
        await issue(oidc=fields)


async def test_google_from_a_metadata_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_issuer(lifetime=600) as server:
        host = server.server.address.removeprefix("http://")
        monkeypatch.delenv("NO_GCE_CHECK")
        monkeypatch.setattr(metadata, "_NO_GCE_CHECK", False)
        monkeypatch.setattr(metadata, "_GCE_METADATA_HOST", host)
        monkeypatch.setenv("GCE_METADATA_IP", host)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
        issued = await issue(google="adc")
        assert issued.value == server.token
        assert issued.expires_at is not None
        assert abs(issued.expires_at - time.time() - 600) < 60


async def test_google_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_NO_GCE_CHECK", True)
    with pytest.raises(IssueFailed, match="credentials were not found"):
        await issue(google="adc")


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Authority:
    """The libraries of platforms want TLS; they trust this one alone."""
    authority = make_authority(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
    return authority


async def test_google_from_a_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authority: Authority
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, form, encryption)
    async with run_issuer(authority.server(), lifetime=600) as server:
        account = {"type": "service_account", "project_id": "mine", "private_key_id": "1"}
        account |= {
            "client_email": "robot@mine.test",
            "token_uri": f"{server.server.address}/token",
        }
        file = tmp_path / "account.json"
        file.write_bytes(orjson.dumps(account | {"private_key": pem.decode()}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        issued = await issue(google="adc")
        assert issued.value == "issued-token-0001"
        assert issued.expires_at is not None
        assert abs(issued.expires_at - time.time() - 600) < 60
        (call,) = server.calls
        assert call["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        audience = "https://oauth2.googleapis.com/token"  # wherever it is sent
        decode: Any = jwt.decode
        claims = decode(call["assertion"], certs=public, audience=audience)
        assert claims["iss"] == "robot@mine.test"
        assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        assert (await issue(google="adc")).value == "issued-token-0002"
        denied = {"error": "invalid_grant", "error_description": "account not found"}
        server.refuses = json_response(denied, 400)
        with pytest.raises(IssueFailed, match=r"invalid_grant.*account not found"):
            await issue(google="adc")


async def test_azure_from_a_workload(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authority: Authority
) -> None:
    file = tmp_path / "identity"
    file.write_text("identity-of-the-workload")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(file))
    async with run_issuer(authority.server(), lifetime=600) as server:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.server.address)
        source = {"identity": "workload", "client_id": "client", "tenant_id": "tenant"}
        issued = await issue(azure=source)
        assert issued.value == "issued-token-0001"
        assert issued.expires_at is not None
        assert abs(issued.expires_at - time.time() - 600) < 60
        assert server.server.last_request.path == "/tenant/oauth2/v2.0/token"
        (call,) = server.calls
        assert (call["client_id"], call["grant_type"]) == ("client", "client_credentials")
        assert call["client_assertion"] == "identity-of-the-workload"
        assert call["scope"] == "https://cognitiveservices.azure.com/.default"
        file.write_text("a-later-identity")
        assert (await issue(azure=source)).value == "issued-token-0002"
        assert server.calls[-1]["client_assertion"] == "a-later-identity"
        denied = {"error": "invalid_client", "error_description": "AADSTS70021: no such subject"}
        server.refuses = json_response(denied, 401)
        with pytest.raises(IssueFailed, match=r"AADSTS70021"):
            await issue(azure=source)


async def test_azure_from_a_managed_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_issuer(lifetime=600) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.server.address}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header-secret")
        issued = await issue(azure={"identity": "managed"})
        assert issued.value == "issued-token-0001"
        assert issued.expires_at is not None
        assert abs(issued.expires_at - time.time() - 600) < 60
        target = server.server.last_request.target
        assert "resource=https://cognitiveservices.azure.com" in unquote(target)
        assert (await issue(azure={"identity": "managed"})).value == "issued-token-0002"
        server.refuses = json_response({"statusCode": 400, "message": "no identity"}, 400)
        with pytest.raises(IssueFailed, match=r"no identity|400"):
            await issue(azure={"identity": "managed"})


async def test_aws_keys_and_roles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(IssueFailed, match="no keys of AWS"):
        await issue(aws={})
    file = tmp_path / "credentials"
    file.write_text("[work]\naws_access_key_id = AKIAFILE\naws_secret_access_key = file-secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    keys = AwsKeys("AKIAFILE", "file-secret", None)
    assert await issue(aws={"profile": "work"}) == Issued(keys)
    with pytest.raises(IssueFailed, match="gone"):
        await issue(aws={"profile": "gone"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-session")
    assert await issue(aws={}) == Issued(AwsKeys("AKIAENV", "env-secret", "env-session"))
    async with run_issuer(lifetime=900) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.server.address)
        issued = await issue(aws={"role": "arn:aws:iam::123456789012:role/gateway"})
        assert issued.value == AwsKeys("ASIAROLE", "role-secret", "issued-token-0001")
        assert issued.expires_at is not None and abs(issued.expires_at - time.time() - 900) < 60
        assert server.calls[0]["RoleSessionName"] == "model-gateway"
        server.refuses = Response(status=403, chunks=(_DENIED,))
        with pytest.raises(IssueFailed, match=r"AccessDenied.*AssumeRole.*not authorized"):
            await issue(aws={"role": "arn:aws:iam::123456789012:role/gateway"})
