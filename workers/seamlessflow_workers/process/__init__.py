"""Child processes: how they are started, forked, adopted, waited for and stopped, and where their output goes."""
