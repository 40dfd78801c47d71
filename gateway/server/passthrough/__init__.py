"""What passes through unchanged: requests and replies of further endpoints."""
