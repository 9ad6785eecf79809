"""Policy versions and their weights."""
