"""The base of all errors that keep an installation from running; each message is one clear
sentence."""


class InstallationFailed(RuntimeError):
    """Caught by the command line, which prints the message and ends with status 1."""
