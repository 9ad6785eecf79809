"""Fixtures that every kind of test may ask for."""

pytest_plugins = ["tests.fixtures.services"]
