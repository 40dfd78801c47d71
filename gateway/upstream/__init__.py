"""Upstreams: sending requests and reading what comes back."""
