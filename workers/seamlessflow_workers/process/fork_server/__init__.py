"""A process that has imported what children need and forks them on request, so that a start costs no imports."""
