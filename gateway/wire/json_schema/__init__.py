"""JSON Schemas in the dialects that upstreams take. It must not know what a schema is for.

Nothing here changes what it is given. What is too deep or too large to be taken apart counts as
what cannot be said. Sources: JSON Schema 2020-12, and the vendors' pages on structured outputs.
"""

from gateway.wire.json_schema.closing import for_messages
from gateway.wire.json_schema.parameters import object_schema
from gateway.wire.json_schema.strictness import is_strict

__all__ = ["for_messages", "is_strict", "object_schema"]
