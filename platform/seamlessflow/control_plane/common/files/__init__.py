"""Files that people send and that the platform stores, read and deleted within bounds."""
