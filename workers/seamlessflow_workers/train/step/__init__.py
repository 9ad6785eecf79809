"""What one process computes of a step: a batch in, gradients and metrics out."""
