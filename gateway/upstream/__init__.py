"""The outside line: making attempts and reading what comes back."""
