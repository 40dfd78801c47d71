"""Server-sent events: frames, templates, translators, filters, emulation."""
