"""Acceptance tests: a package, so that their installation may end with them."""
