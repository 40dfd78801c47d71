"""Conversations through the stock client libraries: one module for each format."""
