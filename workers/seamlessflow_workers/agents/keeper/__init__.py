"""The process between the runner and an agent program: it starts the program and ends everything it started."""
