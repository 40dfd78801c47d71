"""HTTP between clients and the gateway: sockets, heads, bodies, keys, headers, streams."""
