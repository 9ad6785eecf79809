"""The room of those who watch: answers that still grow, for groups that somebody looks at."""
