"""Rules that distinguish, by silences, processes that work from processes that only seem to."""
