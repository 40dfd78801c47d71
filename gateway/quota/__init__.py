"""Limits, budgets, prices and token estimates. Time is an argument."""
