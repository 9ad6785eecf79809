"""Jobs: submit, show, list, cancel, pause, resume."""
