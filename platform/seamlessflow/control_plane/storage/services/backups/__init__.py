"""Back-ups of a running installation, and restoring them into an empty one."""
