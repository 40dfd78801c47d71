"""A server on loopback that issues credentials: OAuth, metadata servers, STS.

Independent of what is tested.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    json_response,
    run_upstream,
)

_STS = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn><AssumedRoleId>A:s</AssumedRoleId>
</AssumedRoleUser><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>
<SecretAccessKey>role-secret</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{until}</Expiration></Credentials></AssumeRoleResult>
<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"""


@dataclass(slots=True)
class Issuer:
    """Issues token-1, token-2 and so on, each valid for `lifetime` seconds. `refuses` answers in
    its place; `delay` are seconds."""

    server: ScriptedUpstream
    lifetime: float = 3600
    refuses: Response | None = None
    delay: float = 0
    issued: int = 0
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def token(self) -> str:
        return f"issued-token-{self.issued:04}"

    async def respond(self, request: ReceivedRequest) -> Response:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        self.calls.append(request.fields or form)
        await asyncio.sleep(self.delay)
        if self.refuses is not None:
            return self.refuses
        if "computeMetadata" in request.path and not request.path.endswith("/token"):
            account = {"aliases": [], "email": "robot@project.test", "scopes": ["all"]}
            return json_response(account, **{"Metadata-Flavor": "Google"})
        self.issued += 1
        until = time.time() + self.lifetime
        if form.get("Action") == "AssumeRole":
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))
            text = _STS.format(token=self.token, until=moment)
            return Response(headers={"content-type": "text/xml"}, chunks=(text.encode(),))
        fields = {"access_token": self.token, "expires_in": self.lifetime, "token_type": "Bearer"}
        if request.headers.get("x-identity-header"):  # as App Service has it
            fields |= {"expires_on": str(int(until)), "resource": "r"}
        return json_response(fields, **{"Metadata-Flavor": "Google"})


@asynccontextmanager
async def run_issuer(tls: ssl.SSLContext | None = None, **settings: Any) -> AsyncIterator[Issuer]:
    async with run_upstream(ScriptedUpstream(), tls) as server:
        issuer = Issuer(server, **settings)
        server.respond_with(issuer.respond)
        yield issuer
