"""What every plane's process needs but `core` may not contain: threads, clocks, sockets. Imports no plane."""
