"""Checks an installation and its upstreams, and replays what real clients send."""
