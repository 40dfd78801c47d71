"""What vendors refuse although the types allow it: one module for each format."""
