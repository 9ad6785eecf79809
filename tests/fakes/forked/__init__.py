"""A program for fork servers: says what it is, and ends as it is told over an inherited socket."""

BORN = object()  # of the process that imported this
