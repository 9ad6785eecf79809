"""Loading a model so that each process of a trainer keeps only its partition of it."""
