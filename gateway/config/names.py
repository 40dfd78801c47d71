"""What names may look like, whatever bears them. It must not know what is called so."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ModelId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$")]
UpstreamModel = Annotated[str, StringConstraints(min_length=1)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$", to_lower=True)]
HeaderText = Annotated[
    str, StringConstraints(pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,254}[\x21-\x7e])?$")
]
"""The value of a header that is no secret."""
