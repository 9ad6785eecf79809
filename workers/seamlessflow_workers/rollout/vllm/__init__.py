"""vLLM behind the same server as the embedded engine: what differs between the two is here and nowhere else."""
