"""Run several management commands in one process, because each start of Django costs a second of processor time.

Each argument is a JSON list of a command's name and its arguments. Standard output is a JSON list of the commands'
outputs, in their order. The first command that fails ends the run; those before it have taken effect.
"""

import io
import json
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("commands", nargs="+", type=json.loads, help="For example: '[\"ensure_owner\"]'")

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(json.dumps([_output(command) for command in options["commands"]]))


def _output(command: list[str]) -> str:
    written = io.StringIO()
    call_command(*command, stdout=written)
    return written.getvalue()
