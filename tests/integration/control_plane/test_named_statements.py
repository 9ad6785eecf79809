"""Every statement of the `.sql` files is used, and PostgreSQL prepares it on a database with all tables."""

import importlib
import re
from pathlib import Path

import pytest
from django.db import connection

from tests.fixtures.repository import ROOT

PLATFORM = ROOT / "platform"
FILES = [path for path in sorted(PLATFORM.rglob("*.sql")) if "migrations" not in path.parts]
VALUE = re.compile(r"%\((\w+)\)s")


@pytest.mark.django_db
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_named_statement_is_used_and_prepares(path: Path) -> None:
    module = importlib.import_module(".".join(path.with_suffix("").relative_to(PLATFORM).parts))
    source = path.with_suffix(".py").read_text()
    for name, statement in module.SQL.items():
        assert f'"{name}"' in source, "no code runs it"
        names = dict.fromkeys(VALUE.findall(statement))
        numbers = {f"%({name})s": f"${number}" for number, name in enumerate(names, start=1)}
        numbered = VALUE.sub(lambda value, numbers=numbers: numbers[value[0]], statement)  # type: ignore[misc]
        with connection.cursor() as cursor:
            cursor.execute(f"PREPARE it AS {numbered.replace('%%', '%')}")
            cursor.execute("DEALLOCATE it")
