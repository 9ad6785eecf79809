"""The room of batches: chooses which groups train next, and makes the bytes that trainers get."""
