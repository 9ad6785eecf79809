"""Reads of this app. They write nothing."""
