"""What every plane's process needs and `core` may not hold: threads, clocks, sockets. Knows no plane."""
