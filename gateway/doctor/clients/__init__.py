"""Replays of clients against a gateway: their requests as data, one file for each client."""
