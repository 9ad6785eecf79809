"""PostgreSQL: the rows that the data plane owns, written with its own SQL."""
