"""`pg_dump` and `pg_restore` against Django's database.

The password is passed in the environment, where other users of the host cannot read it. Interrupting the caller also
ends the program.
"""

import subprocess
from pathlib import Path

from django.db import connection

from seamlessflow.runtime.postgres_programs import postgres_bin_dir, postgres_environment

_VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
}


class ProgramFailed(RuntimeError):
    """A program of PostgreSQL is missing or refused; the message is its last line."""


def database_dump(target: Path, *, snapshot: str) -> None:
    """Dump the database with `pg_dump`. Raises ProgramFailed."""
    _run("pg_dump", "--format=custom", f"--snapshot={snapshot}", f"--file={target}")


def database_restore(source: Path) -> None:
    """Restore everything or nothing. Raises ProgramFailed."""
    dbname = str(connection.get_connection_params()["dbname"])
    _run(
        *("pg_restore", "--single-transaction", "--exit-on-error", "--no-owner", "--no-acl"),
        *(f"--dbname={dbname}", str(source)),
    )


def _run(program: str, *arguments: str) -> None:
    bin_dir = postgres_bin_dir(program)
    if bin_dir is None:
        raise ProgramFailed(
            f"{program} was not found: install PostgreSQL's client programs, of the server's version or a newer one"
        )
    known = connection.get_connection_params()
    given = {name: str(known[key]) for key, name in _VARIABLES.items() if known.get(key)}
    done = subprocess.run(
        [str(bin_dir / program), "--no-password", *arguments],
        env={**postgres_environment(bin_dir), **given},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise ProgramFailed(f"{program}: {lines[-1]}")
