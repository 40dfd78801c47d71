"""Several replicas on one database server; limits, health and affinity shared in Valkey."""
