"""One request of a client from start to end: what it asks, its row, its bill, its deadlines."""
