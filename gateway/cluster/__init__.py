"""Replicas on one database server: who they are, and what one changes is known to all."""
