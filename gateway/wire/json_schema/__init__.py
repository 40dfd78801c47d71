"""JSON Schemas in the dialects that upstreams take. It must not know what a schema is for.

Nothing here changes what it is given. What is too deep or too large to be taken apart counts as
what cannot be said. Sources: JSON Schema 2020-12, and the vendors' pages on structured outputs.
"""

from gateway.wire.json_schema.closing import messages_schema
from gateway.wire.json_schema.parameters import parameters_schema
from gateway.wire.json_schema.strictness import is_strict

__all__ = ["messages_schema", "is_strict", "parameters_schema"]
