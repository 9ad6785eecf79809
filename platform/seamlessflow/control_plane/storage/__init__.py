"""What is stored, by project and kind; what the retention policy keeps; and what is deleted."""
