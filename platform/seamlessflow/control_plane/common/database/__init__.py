"""The database itself: its clock, its absence, the gateway's role in it."""
