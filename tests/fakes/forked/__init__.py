"""A program for fork servers: it describes itself, and ends as an inherited socket tells it."""

BORN = object()  # of the process that imported this
