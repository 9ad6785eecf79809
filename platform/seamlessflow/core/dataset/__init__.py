"""The offline dataset of a job: which recorded sessions it selects, and the order in which it
trains on them."""
