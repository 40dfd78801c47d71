"""Routing decisions. Time is an argument."""
