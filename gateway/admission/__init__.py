"""Who may come in, what for, and when it is whose turn. It knows no HTTP."""
