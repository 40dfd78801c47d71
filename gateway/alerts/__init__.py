"""Alerts: conditions of the running gateway, and the webhooks that are told of them."""
