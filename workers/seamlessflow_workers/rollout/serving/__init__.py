"""The common code of both kinds of engine: the HTTP surface, its requests and sequences, and how an engine process
behaves."""
