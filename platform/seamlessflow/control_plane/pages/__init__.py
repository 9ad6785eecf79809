"""The first screens, rendered by the server and kept live by one small script."""
