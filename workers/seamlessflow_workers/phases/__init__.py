"""WarmProcess children of a supervisor, one module per way of talking to them."""
