"""Named SQL statements from a file beside the module that runs them: `snapshot_rows.sql` beside `snapshot_rows.py`.

Takes the module's name and the constants that its statements use; returns the statements by name, once, at import. A
file is a list of statements, each below `-- name: NAME`, and of texts that several of them contain, each below
`-- fragment: NAME`. Comments say what a statement reads and locks, and why; they take whole lines, which are left out.
`{PhaseState.ENDED}` becomes a quoted literal, because plans depend on it (partial indices) or several states are
compared; `{live}` becomes a constant, a list of literals, or the text above of that name. Values stay `%(job_id)s`.
Invariant: only members of enums, numbers and words from constants become text, never a caller's value.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from importlib import resources

Constant = str | float | Collection[str]
_HEADER = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_FIELD = re.compile(r"\{([A-Za-z_][\w.]*)\}")
_WORD = re.compile(r"[a-z_]+")


def statements(module: str, *enums: type[StrEnum], **constants: Constant) -> Mapping[str, str]:
    """Return the statements of the module's file. Raises KeyError for a field that names no constant, ValueError for a
    constant that is no word or that no statement uses."""
    package, _, stem = module.rpartition(".")
    text = resources.files(package).joinpath(f"{stem}.sql").read_text(encoding="utf-8")
    members = {f"{enum.__name__}.{member.name}": member for enum in enums for member in enum}
    fields = {name: sql_literal(constant) for name, constant in (members | constants).items()}
    used, found = set[str](), dict[str, str]()

    def filled(field: re.Match[str]) -> str:
        used.add(field[1])
        return fields[field[1]]

    parts = iter(_HEADER.split(text)[1:])
    for kind, name, body in zip(parts, parts, parts, strict=True):
        statement = _FIELD.sub(filled, _COMMENT.sub("", body).strip())
        fields[name] = statement
        if kind == "name":
            found[name] = statement
    if unused := constants.keys() - used | {enum.__name__ for enum in enums} - {
        name.split(".")[0] for name in used
    }:
        raise ValueError(f"{stem}.sql uses no {', '.join(sorted(unused))}")
    return found


def sql_literal(constant: Constant) -> str:
    """Return `'open'` for `GroupState.OPEN`, and a list for several. Raises ValueError for a text that is no word."""
    if isinstance(constant, int | float):
        return repr(constant)
    if not isinstance(constant, str):
        return ", ".join(map(sql_literal, sorted(constant)))
    if not _WORD.fullmatch(constant):
        raise ValueError(f"{constant!r} is no word: it cannot be put into a statement")
    return f"'{constant}'"
