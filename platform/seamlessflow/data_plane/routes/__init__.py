"""HTTP: turns on bare ASGI, all other routes on Starlette."""
