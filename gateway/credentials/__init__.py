"""Credentials that expire: obtaining them in time, and signing requests with them."""
