"""One key, three wire formats, any model behind it."""

__version__ = "0.1.0"
