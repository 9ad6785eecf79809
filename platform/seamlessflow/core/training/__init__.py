"""What a job's training options mean beyond their types."""
