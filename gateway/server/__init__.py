"""The door: what clients reach over HTTP."""
