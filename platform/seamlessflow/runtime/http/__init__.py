"""All HTTP of the house: the server's protocol and its limits, bodies, heads, and the client for many small calls."""
