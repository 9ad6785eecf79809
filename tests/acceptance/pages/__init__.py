"""Pages in one Chromium: a package, so that its fixtures may belong to all of its modules."""
