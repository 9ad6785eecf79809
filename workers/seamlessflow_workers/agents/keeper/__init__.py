"""The process between the runner and an agent program: it starts the program and ends all that the program started."""
