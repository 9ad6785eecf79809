"""What runs a job's agents."""
