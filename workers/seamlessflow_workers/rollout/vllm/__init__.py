"""vLLM behind the same server as the embedded engine: everything that differs between the two is here."""
