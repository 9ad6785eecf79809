"""Loading a model so that each process of a trainer holds only its share of it."""
