"""Who may do what: one table of operations, and one of routes, that both planes, the documents and the tests share."""
