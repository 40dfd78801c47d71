"""Compaction: a summary takes the place of the earlier turns of a long conversation."""
