"""What runs on machines: the supervisor and its children."""
