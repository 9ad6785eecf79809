"""The contract of engines: a package, so that the servers that its tests have in common may end with them."""
