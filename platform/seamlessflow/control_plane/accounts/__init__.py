"""People, projects and tokens."""
