"""Stored bytes by project and kind; the retention policy; and deletions."""
