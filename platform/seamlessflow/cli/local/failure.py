"""The base of all errors that keep an installation from running; each message is one clear
sentence."""


class InstallationFailed(RuntimeError):
    """The installation cannot run. The command line prints the message and exits with status 1."""
