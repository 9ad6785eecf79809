"""What events are about when it is nothing that has a row."""

from uuid import UUID

INSTALLATION = UUID(int=0)
