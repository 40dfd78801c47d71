"""Reads, limits and edits JSON bytes."""
