"""The wire formats."""
