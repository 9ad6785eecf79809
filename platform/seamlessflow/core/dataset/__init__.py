"""Training data that other jobs recorded: what is chosen of it, and in which order it is trained."""
