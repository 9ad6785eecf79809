"""PostgreSQL: the rows that the data plane owns, read and written with its own SQL."""
