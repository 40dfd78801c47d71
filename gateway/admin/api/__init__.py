"""The admin API: routes, forms, JSON, the feed, and the socket that serves it."""
