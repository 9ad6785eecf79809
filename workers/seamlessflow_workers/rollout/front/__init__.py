"""The front: the only way from a gateway to an engine."""
