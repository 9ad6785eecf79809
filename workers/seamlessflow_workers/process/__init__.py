"""Child processes: starting, forking, adopting, waiting for and stopping them, and where their output goes."""
