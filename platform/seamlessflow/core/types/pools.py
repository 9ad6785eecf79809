"""The pools of machines that projects are granted."""

OPEN_POOL = "default"  # open to all projects until it is granted to some
