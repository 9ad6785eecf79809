"""Anticipated failures of the command, shown as one line without a trace."""


class CliError(Exception):
    """Something the user can mend; the message says how."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
