"""What only a database in one file has."""
