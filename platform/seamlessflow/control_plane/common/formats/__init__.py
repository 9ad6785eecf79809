"""How Django's own pages write moments, by language."""
