"""Several replicas on one database server: membership, and the changes that each makes known."""
