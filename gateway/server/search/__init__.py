"""Replies of several rounds: web searches that the gateway runs, and paused turns."""
