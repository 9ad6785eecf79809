"""The gateways of an installation: which of them live, and which of them serves what."""
