"""Shows growing answers of the groups that viewers watch."""
