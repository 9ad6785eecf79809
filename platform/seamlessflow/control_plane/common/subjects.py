"""Subjects of events that have no row of their own."""

from uuid import UUID

INSTALLATION = UUID(int=0)
