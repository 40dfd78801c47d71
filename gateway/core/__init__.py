"""Values that all packages share: prompts, replies, events, limits."""
