"""Rules of back-ups, free of input and output."""
