"""Permissions of keys, and the queue before limits."""
