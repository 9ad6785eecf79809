"""Identifiers as arguments and options of commands. A wrong one is refused before anything is sent."""

import click

from seamlessflow.cli.errors import CliError
from seamlessflow.core.types.ids import IdKind, parse_id

WHERE = {
    IdKind.JOB: "`seamlessflow jobs list` shows them",
    IdKind.PHASE: "the job's page shows them under Phases",
    IdKind.SESSION: "the job's page shows them under Groups",
}


class Identifier(click.ParamType[str]):
    def __init__(self, kind: IdKind) -> None:
        self.name = f"{kind.name.lower()} id"
        self._kind = kind

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_id(self._kind, value)
        except ValueError as error:
            raise CliError(f"{error}; {WHERE[self._kind]}", exit_code=2) from error
        return value
