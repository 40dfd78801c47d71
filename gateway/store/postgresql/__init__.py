"""What only a database on a PostgreSQL server has."""
