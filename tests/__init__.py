"""Tests and their tools. It is a package, so that a module has one name for pytest and for imports."""
