"""Expected failures of the command, shown as one line without a traceback."""


class CliError(Exception):
    """A problem that the user can fix. The message says how."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
