"""HTTP between our own processes: connections, servers and their limits, bodies."""
