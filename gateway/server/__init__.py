"""The endpoints that clients use, and the path of a request through them."""
