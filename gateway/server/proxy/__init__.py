"""One request on its way to an upstream and back; it knows no optional feature."""
