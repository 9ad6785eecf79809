"""What both kinds of engine share: the HTTP surface, its requests and sequences, and how an engine process behaves."""
