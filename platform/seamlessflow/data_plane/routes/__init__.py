"""HTTP: chat on bare ASGI, all other routes on Starlette."""
