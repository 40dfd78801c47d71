"""What replicas share in a Valkey server; without one nothing of this package is imported."""
