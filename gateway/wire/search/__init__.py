"""Web searches in prompts, replies and histories."""
