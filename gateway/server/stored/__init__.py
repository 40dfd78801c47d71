"""Stored responses, conversations and threads, and responses in the background."""
