"""Where the credential of an account comes from that is not in the file, because it expires."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gateway.config.secrets import SecretResolver, resolve_key
from gateway.config.types import ConfigModel, HeaderName, HeaderText, Seconds, check_url

_EXTRAS: Final = {
    "google": ("google.auth", "google-auth"),
    "azure": ("azure.identity", "azure-identity"),
    "aws": ("botocore", "botocore"),
}
"""Of a source: the module that it needs, and the package that has it. The extra has its name."""

_AWS_HOST: Final = re.compile(
    r"(?P<service>bedrock|aws-external-anthropic)(?P<kind>-[a-z-]+)?\.(?P<region>[a-z0-9-]+)\."
    r"(?:api\.aws|amazonaws\.com(?:\.cn)?)"
)

Text = Annotated[str, Field(min_length=1, max_length=2048)]
Argument = Annotated[str, Field(max_length=4096)]


class AzureSource(ConfigModel):
    """Tokens of Microsoft Entra, by azure-identity."""

    identity: Literal["default", "workload", "managed"] = "default"
    """default: what azure-identity finds, environment and Azure CLI included; workload: the
    federated token of a Kubernetes workload; managed: the managed identity of the machine."""
    client_id: Text | None = None
    """The client id of a user-assigned identity; null: that of the environment or the machine."""
    tenant_id: Text | None = None
    """The tenant of a workload identity; null: that of the environment."""
    scope: Text = "https://cognitiveservices.azure.com/.default"
    """What the token is for."""


class AwsSource(ConfigModel):
    """Keys of AWS, by botocore, which sign each request (SigV4)."""

    profile: Text | None = None
    """A profile of the AWS configuration files; null: botocore's chain: environment, files, web
    identity, container, machine."""
    role: Text | None = None
    """The ARN of a role that is assumed with these keys."""
    region: Text | None = None
    """The region that requests are signed for; null: that in the host of base_url."""
    service: Text | None = None
    """The service that they are signed for; null: bedrock, bedrock-mantle or
    aws-external-anthropic, by the host of base_url."""

    def scope(self, base_url: str) -> tuple[str, str] | None:
        """Returns the service and the region that requests are signed for; None if they are
        neither stated nor in the host."""
        host = _AWS_HOST.fullmatch(urlsplit(base_url).hostname or "")
        service, region = self.service, self.region
        if host is not None:
            is_mantle = host["kind"] == "-mantle"
            service = service or ("bedrock-mantle" if is_mantle else host["service"])
            region = region or host["region"]
        return (service, region) if service and region else None


class OidcSource(ConfigModel):
    """Tokens that an OAuth server issues for an identity token, which somebody else renews in a
    file, such as Kubernetes (RFC 8693, RFC 7523)."""

    token_file: Annotated[str, Field(pattern=r"^/")]
    """The absolute path of the identity token; read for every exchange."""
    token_url: Annotated[str, AfterValidator(check_url)]
    """The address of the OAuth server's endpoint for tokens."""
    grant: Literal["token-exchange", "jwt-bearer"] = "token-exchange"
    """The kind of the exchange: RFC 8693 or RFC 7523."""
    audience: Text | None = None
    """What the token is for; null: not sent."""
    scope: Text | None = None
    """What the token allows; null: not sent."""
    params: Mapping[Text, Text] = {}
    """Further parameters of the exchange, such as service_account_id."""
    headers: Mapping[HeaderName, HeaderText] = {}
    """Further headers of the exchange."""
    encoding: Literal["form", "json"] = "form"
    """The encoding of the parameters: form, as OAuth has it, or json."""


class KeySource(ConfigModel):
    """The source of a credential that expires: one of command, google, azure, aws and oidc. The
    gateway renews it in time."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1)] | None = None
    """A program and its arguments, without a shell, that writes the credential to its output:
    alone, or as JSON with access_token (or token) and expires_in or expires_on."""
    ttl: Seconds = 3000
    """For how long a credential is valid that does not say so itself."""
    google: Literal["adc"] | None = None
    """Access tokens of Google's application default credentials, by google-auth."""
    azure: AzureSource | None = None
    """Tokens of Microsoft Entra."""
    aws: AwsSource | None = None
    """Keys of AWS; requests are signed with them."""
    oidc: OidcSource | None = None
    """Tokens of an OAuth server for an identity token in a file."""

    @property
    def kind(self) -> str:
        return next(name for name in _KINDS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        kinds = [name for name in _KINDS if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise PydanticCustomError("key", "must have exactly one of " + ", ".join(_KINDS))
        module, package = _EXTRAS.get(kinds[0], ("", ""))
        if isinstance(info.context, SecretResolver) and module and not _is_installed(module):
            text = "{kind} needs {package}: pip install 'model-gateway[{kind}]'"
            raise PydanticCustomError("key", text, {"kind": kinds[0], "package": package})
        return self


_KINDS: Final = ("command", "google", "azure", "aws", "oidc")


@cache
def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _form(value: Any) -> str:
    return "source" if isinstance(value, dict | KeySource) else "text"


Key = Annotated[
    Annotated[SecretStr, AfterValidator(resolve_key), Tag("text")]
    | Annotated[KeySource, Tag("source")],
    Discriminator(_form),
]
"""A credential, a reference to it, or the source of one that expires."""
