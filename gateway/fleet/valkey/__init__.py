"""The connection to the Valkey server."""
