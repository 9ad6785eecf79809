"""Who may do what: one table of operations and one of routes, shared by both planes, the documents and the tests."""
